"""Numbers and durations in header fields. Any text that is not one, or that is too large to be true, is None."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 366 * 86_400.0
"""The longest time in seconds that is believed: a year."""
MOST: Final = 999_999_999_999_999
"""The largest amount that is believed: the largest integer of a structured field."""

_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?")
_PART: Final = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_DURATION: Final = re.compile(rf"(?:{_PART}(?:d|h|ms|m|s|us|\xb5s|ns))+")
_PARTS: Final = re.compile(rf"({_PART})(d|h|ms|m|s|us|\xb5s|ns)")
_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\xb5s": 1e-6, "ns": 1e-9}
_LONGEST_TEXT: Final = 64


def number(text: str) -> float | None:
    """Return a decimal number from 0, of at most 15 digits before the point."""
    return float(text) if _NUMBER.fullmatch(text) else None


def amount(text: str) -> int | None:
    """Return what is left of a limit; a fraction is not enough for a request."""
    found = number(text)
    return None if found is None else int(found)


def total(text: str) -> int | None:
    """Return the amount of a limit: at least 1."""
    return amount(text) or None


def seconds(text: str) -> float | None:
    """Return a number of seconds, at most `LONGEST`."""
    found = number(text)
    return found if found is not None and found <= LONGEST else None


def duration(text: str) -> float | None:
    """Return the seconds of a duration as Go writes it: `6m0s`, `1h2m3.5s`, `12ms`."""
    if len(text) > _LONGEST_TEXT or not _DURATION.fullmatch(text):
        return None
    found = sum(float(value) * _UNITS[unit] for value, unit in _PARTS.findall(text))
    return found if found <= LONGEST else None
