"""A request that a budget sends: what keys and estimates read of it, and how its transport sends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from headgate.client.retrying import Failure
from headgate.client.usage import UsageRequest
from headgate.errors import BudgetExhausted

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def refusal_fields(error: BudgetExhausted) -> dict[str, str]:
    """Return the header fields of a response that a budget made up; SDKs do not retry it."""
    wait = str(max(1, math.ceil(error.retry_after)))
    return {"Headgate-Refused": "local", "Retry-After": wait, "x-should-retry": "false"}


def refusal_content(error: BudgetExhausted) -> dict[str, dict[str, str]]:
    """Return the JSON of a response that a budget made up, in the form that SDKs read."""
    return {"error": {"message": str(error), "type": "headgate_refused"}}


def host_of(scheme: str, host: str, port: int | None) -> str:
    """Return the host of a URL, with the port unless it is the default: one host is one key in every transport."""
    bracketed = f"[{host}]" if ":" in host else host
    return (bracketed if port in (None, DEFAULT_PORTS.get(scheme)) else f"{bracketed}:{port}").lower()


class Outgoing:
    """One request. A transport has a subclass; its results may be awaitable where the transport is."""

    method: str = "GET"
    host: str = ""
    path: str = ""
    headers: Mapping[str, str] = {}
    """Header fields, their names in lower case."""
    body: bytes | None = b""
    """The body; None if it cannot be read without sending it."""
    repeatable: bool = True
    """False if the body can be sent only once."""
    usage: UsageRequest | None = None
    """The part of the body that the budget's `usage` has read."""
    added: Mapping[str, str] = {}
    """Header fields to send where the request has none of that name; each attempt has its own."""
    _written: frozenset[str] = frozenset()
    answered: bool = True
    """False if `send` returned before the server answered, as for a stream that the caller writes: nothing is heard."""
    decompressed: bool = False
    """True if `watch` feeds the body as the caller reads it, decompressed by the library."""

    def _write_added(self, headers: MutableMapping[str, str]) -> None:
        """Write the added fields into the request's, also over those of the attempt before: the time left is less."""
        for name, value in self.added.items():
            if name in self._written or name not in headers:
                headers[name] = value
                self._written |= {name}

    def send(self) -> Any:  # noqa: ANN401
        """Send the request, and return the transport's response."""
        raise NotImplementedError

    def head(self, response: Any) -> tuple[int, Mapping[str, str]]:  # noqa: ANN401
        """Return the status and the header fields of a response, their names in lower case."""
        raise NotImplementedError

    def content(self, response: Any) -> Any:  # noqa: ANN401
        """Read the body of a short response, which stays readable for the caller, and return it."""
        raise NotImplementedError

    def close(self, response: Any) -> Any:  # noqa: ANN401
        """End a response that the caller does not see."""
        raise NotImplementedError

    def failure(self, error: Exception) -> Failure | None:
        """Return how the connection failed, or None if this error is another one."""
        raise NotImplementedError

    def refusal(self, error: BudgetExhausted) -> Any:  # noqa: ANN401
        """Return a response that says what this error says; raise the error if there is no such response."""
        raise error

    def read_already(self, response: Any) -> bytes | None:  # noqa: ANN401
        """Return the decoded body of a response that was read before it came here; None if it is still to be read."""
        return None

    def watch(self, response: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return a response whose body is fed chunk by chunk as it is read; `end()` is called once, when it is closed.

        SDKs close a stream at its last event, before its last byte: the reader of the chunks knows what is missing.
        """
        raise NotImplementedError
