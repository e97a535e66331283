"""The contract of `usage=`: the body of a request gives the units to reserve, and a reader for its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class UsageReader(Protocol):
    """Reads the answer of one attempt. It keeps a bounded part of the bytes, and no bytes make it raise."""

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes of the answer, as they came from the network."""

    def close(self) -> Mapping[str, int] | None:
        """Return the units that were used, by name, once the bytes have ended; a second call returns the same.

        None: the answer was cut short or told no usage, and the reservation stays.
        """


class UsageRequest(Protocol):
    """One request, whose body was read once. Every attempt takes a reader of its own."""

    @property
    def model(self) -> str | None:
        """The model that the body names, for `key="model"`."""

    @property
    def units(self) -> Mapping[str, int]:
        """The units to reserve, by name. The names that are limits of the budget count, the others do not."""

    def reader(self, content_type: str = "", content_encoding: str = "") -> UsageReader:
        """Return a reader for an answer with these header fields; the caller has checked that its status is 2xx."""


class Usage(Protocol):
    """Knows the bodies of one kind of API."""

    def request(self, body: bytes | None) -> UsageRequest:
        """Read the body of a request; b"" is no body, and None a body that cannot be read beforehand."""
