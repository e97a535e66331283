"""The part of a response that dialects read: a few header fields, the status, the beginning of the body, the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Final

from headgate.client.dialects.instants import http_date
from headgate.client.dialects.numbers import LONGEST
from headgate.clock import SECOND

Headers = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
"""Header fields as any HTTP library has them: a mapping or pairs, str or bytes, names in any case."""

LONGEST_VALUE: Final = 16_384
"""The most characters of a field. A longer one is not read at all: no limit needs that many to be told."""
LONGEST_BODY: Final = 4_096
"""The most bytes of a body that are searched."""
_NAMES: Final = frozenset(
    {
        "date",
        "grpc-retry-pushback-ms",
        "grpc-status-details-bin",
        "retry-after",
        "retry-after-ms",
        "stripe-should-retry",
        "x-ms-retry-after-ms",
        "x-shopify-shop-api-call-limit",
        "x-should-retry",
    }
)
_SILENT: set[str | bytes] = set()
"""Names of fields that no dialect reads, as servers have written them; `date` alone tells nothing."""
_FIRST: Final = itemgetter(0)
MOST_SILENT: Final = 1_024
LONGEST_SILENT: Final = 64
_LISTS: Final = frozenset({"ratelimit", "ratelimit-policy"})
"""Fields whose lines are one list; of any other field, the first line counts."""


def tells_nothing(headers: Headers) -> bool:
    """Return whether no field is one that a dialect reads. Servers repeat the same names, so known ones are quick."""
    raw = getattr(headers, "raw", None)
    pairs = raw if isinstance(raw, list) else None if isinstance(headers, Mapping) else headers
    names = headers if pairs is None else [*map(_FIRST, pairs)]
    return _SILENT.issuperset(names) or all(map(_is_silent, names))


def _is_silent(given: str | bytes) -> bool:
    if given in _SILENT:
        return True
    name = (given if isinstance(given, str) else given.decode("latin-1")).lower()
    silent = name == "date" or not _is_read(name)
    if silent and len(given) <= LONGEST_SILENT and len(_SILENT) < MOST_SILENT:
        _SILENT.add(given)
    return silent


def _is_read(name: str) -> bool:
    return name in _NAMES or "ratelimit" in name or name.startswith("x-rate-limit")


def fields_of(headers: Headers) -> dict[str, str]:
    """Return the fields that some dialect reads, by their names in lower case."""
    fields: dict[str, str] = {}
    for given, value in _pairs(headers):
        name = (given if isinstance(given, str) else given.decode("latin-1")).lower()
        if not _is_read(name) or len(value) > LONGEST_VALUE:
            continue
        text = value if isinstance(value, str) else value.decode("latin-1")
        if not name.endswith("-bin"):  # the last byte of binary metadata may be that of a space
            text = text.strip()
        before = fields.get(name)
        if before is None:
            fields[name] = text
        elif name in _LISTS and len(before) + len(text) < LONGEST_VALUE:
            fields[name] = f"{before}, {text}"
    return fields


def _pairs(headers: Headers) -> Iterable[tuple[str | bytes, str | bytes]]:
    raw: list[tuple[bytes, bytes]] | None = getattr(headers, "raw", None)
    if isinstance(raw, list):  # httpx decodes every field for `items()`, and most are not read here
        return raw
    return headers.items() if isinstance(headers, Mapping) else headers


class Response:
    """A response, for dialects; `fields` have names in lower case, `now` is in microseconds since the epoch."""

    def __init__(self, status: int, fields: Mapping[str, str], now: int, body: bytes = b"") -> None:
        self.status = status
        self.fields = fields
        self.body = body[:LONGEST_BODY]
        self._now = now

    def get(self, name: str) -> str:
        """Return the text of a field; empty if the response does not have it."""
        return self.fields.get(name, "")

    @cached_property
    def sent_at(self) -> float:
        """The instant of the response in the server's own time, if it has a `Date`: clocks differ by minutes."""
        date = http_date(self.get("date"))
        return self._now / SECOND if date is None else date

    def until(self, instant: float | None) -> float | None:
        """Return the seconds until an instant: 0 if it has passed, None if it is too far away to be true."""
        if instant is None or not instant - self.sent_at <= LONGEST:
            return None
        return max(0.0, instant - self.sent_at)
