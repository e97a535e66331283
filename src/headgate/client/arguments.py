"""Checks of the numbers that users give to a client."""

from __future__ import annotations

import math

from headgate.errors import InvalidCall
from headgate.wording import shown


def checked_seconds(name: str, value: float, *, above_zero: bool = False) -> float:
    """Return a time in seconds, or raise `InvalidCall`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _fits(value, above_zero):
        least = "above 0" if above_zero else "from 0"
        raise InvalidCall(f"{name} must be a number of seconds {least}; got {shown(value)}")
    return float(value)


def _fits(value: float, above_zero: bool) -> bool:
    try:
        return math.isfinite(value) and (value > 0 if above_zero else value >= 0)
    except OverflowError:  # an integer that is too large for a float
        return False


def checked_count(name: str, value: int, least: int) -> int:
    """Return a whole number, or raise `InvalidCall`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidCall(f"{name} must be a whole number from {least}; got {shown(value)}")
    return value


def checked_share(name: str, value: float) -> float:
    """Return a part of a whole, or raise `InvalidCall`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidCall(f"{name} must be a number from 0 to 1; got {shown(value)}")
    return float(value)
