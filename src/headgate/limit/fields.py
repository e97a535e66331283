"""The arguments of a `Limit`, checked."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.algorithms import CALENDAR, DEFAULT, EXACT, IN_FLIGHT, Algorithm, algorithm_named
from headgate.algorithms.block import MOST_TIMES
from headgate.clock import MILLISECOND, SECOND
from headgate.errors import InvalidLimit
from headgate.limit.grammar import parse_period, parse_window, write_period

if TYPE_CHECKING:
    from datetime import timedelta

    from headgate.limit.calendar import Calendar

LONGEST_PERIOD: Final = 2**48
LEASE: Final = 30 * SECOND
"""The lifetime of a permit on a server where its holder does not renew it."""

Period: TypeAlias = "str | int | float | timedelta"


def algorithm_for(given: str | None, per: int | Calendar) -> Algorithm:
    """Return the algorithm of a limit; a window of the calendar is a fixed window, and no other."""
    named = algorithm_named(given or DEFAULT)
    if isinstance(per, int):
        return named
    if given is not None and named.name != CALENDAR.name:
        raise InvalidLimit(
            f"{per} is a window of the calendar, so it is a fixed-window: leave {given} out, or write a period of "
            f"fixed length, as in {write_period(per.period_us)}"
        )
    return CALENDAR


def checked_per(per: Period | None, amount: int, algorithm: str | None) -> int | Calendar:
    """Return the period of a limit: a time, or a window of the calendar."""
    if per is None:
        if algorithm != IN_FLIGHT.name:
            raise InvalidLimit(f"a limit needs a period: write for instance Limit({amount!r}, 'minute')")
        return LEASE
    window = parse_window(per) if isinstance(per, str) and algorithm != IN_FLIGHT.name else None
    return window or microseconds(per, "the period")


def frames_to_caller() -> int:
    """Return the `stacklevel` of the first caller outside Headgate: a warning points at the line with the limit."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        depth, frame = depth + 1, frame.f_back
    return depth


def whole(value: int, what: str) -> int:
    """Return a number of units, or raise `InvalidLimit`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < EXACT:
        raise InvalidLimit(f"{what} of a limit must be a whole number from 0 to {EXACT - 1}; got {value!r}")
    return value


def checked_burst(burst: int, amount: int) -> int:
    """Return the burst, or raise `InvalidLimit`: only a limit that lets no request pass has none."""
    if whole(burst, "the burst") and not amount:
        raise InvalidLimit(f"burst {burst}: an amount of 0 lets no request pass, so it has no burst; leave it out")
    if amount and not burst:
        raise InvalidLimit("a burst of 0 lets no request pass: write an amount of 0, as in 0/minute")
    return burst


def microseconds(period: Period, what: str) -> int:
    """Return a time in microseconds, or raise `InvalidLimit`."""
    if isinstance(period, str):
        us = parse_period(period)
    elif isinstance(period, int | float) and not isinstance(period, bool) and 0 < period < LONGEST_PERIOD / SECOND:
        us = round(period * SECOND)
    else:
        from datetime import timedelta  # here, because most programs never need it

        if not isinstance(period, timedelta):
            raise InvalidLimit(f"{what} must be a time such as '2 hours', seconds or a timedelta; got {period!r}")
        us = period // timedelta(microseconds=1)
    if us % MILLISECOND or not 0 < us < LONGEST_PERIOD:
        raise InvalidLimit(f"{what} must be a whole number of ms, from 1 ms to 465 weeks; got {period!r}")
    return us


class Block(NamedTuple):
    """The block of a limit."""

    first_us: int
    growth: tuple[int, ...]
    """The memory and the times of a block that grows; empty for any other."""


def checked_block(given: Period) -> Block:
    """Return a block: a time, or several, `1m, 10m, 1d within 1w`; without `within`, the memory is the last time."""
    if not isinstance(given, str) or not ("," in given or "within" in given):
        return Block(microseconds(given, "the block") if given else 0, ())
    texts, _, within = given.partition(" within ")
    times = [microseconds(text, "the block") for text in texts.split(",")]
    if not 1 < len(times) <= MOST_TIMES or any(later <= sooner for sooner, later in pairwise(times)):
        raise InvalidLimit(
            f"a block that grows has from 2 to {MOST_TIMES} times, each longer than the one before, as in "
            f"1m, 10m, 1d within 1w; got {given!r}"
        )
    memory = microseconds(within, "the memory of a block") if within else times[-1]
    return Block(times[0], (memory, *times, *times[-1:] * (MOST_TIMES - len(times))))


def write_block(block_us: int, growth: tuple[int, ...]) -> str:
    """Write a block as `checked_block` reads it."""
    if not growth:
        return write_period(block_us)
    memory, *times = growth
    each = dict.fromkeys(times)
    within = "" if memory == times[-1] else f" within {write_period(memory)}"
    return ", ".join(map(write_period, each)) + within
