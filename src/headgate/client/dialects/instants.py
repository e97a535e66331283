"""Instants in header fields, as seconds since the epoch. Any text that is not one is None."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_IMF: Final = re.compile(
    r"[A-Za-z]{3,9}, ([0-9]{1,2})[ -]([A-Za-z]{3})[ -]([0-9]{2}|[0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) (?:GMT|UTC)"
)
"""The form of RFC 9110, and that of RFC 850 with a year of two digits."""
_ASCTIME: Final = re.compile(r"[A-Za-z]{3} ([A-Za-z]{3}) ([ 0-9][0-9]) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})")
_ISO: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def http_date(text: str) -> float | None:
    """Return an HTTP date, in any of its three forms: `Sun, 06 Nov 1994 08:49:37 GMT`."""
    if found := _IMF.fullmatch(text):
        day, month, year, hour, minute, second = found.groups()
    elif found := _ASCTIME.fullmatch(text):
        month, day, hour, minute, second, year = found.groups()
    else:
        return None
    century = (1900 if int(year) >= 70 else 2000) if len(year) == 2 else 0
    try:
        at = (century + int(year), _MONTHS.index(month.lower()) + 1, int(day), int(hour), int(minute))
        return datetime(*at, min(int(second), 59), tzinfo=UTC).timestamp()  # a leap second has the number 60
    except ValueError:
        return None


def iso_date(text: str) -> float | None:
    """Return an instant of RFC 3339: `2026-11-16T20:00:00Z`. One without a zone is in UTC."""
    if not _ISO.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
