"""Constants and helpers that the native and the pure engine share."""

from __future__ import annotations

from typing import Final

from headgate.algorithms import EXACT
from headgate.clock import HOUR, Clock
from headgate.errors import HeadgateError
from headgate.layout import WAYS
from headgate.limit import Limit

TAKE: Final = 0
"""Charge if all limits allow it."""
PEEK: Final = 1
"""Answer like TAKE; write nothing."""
UP_TO: Final = 2
"""Charge as much of the cost as fits, at least 1."""
RESERVE: Final = 3
"""Like TAKE, but where the step lends, also charge a cost that fits within the given wait; the retry is the delay."""

LEASED: Final = -2
"""The mark of a charge that was paid from a lease; its number is the serial of the lease."""
LONGEST_WAIT: Final = HOUR
"""The longest time for which a bucket lends. A bucket that is further ahead means that the clock stepped back."""


def slots_for(max_keys: int) -> int:
    """Return the number of slots in which `max_keys` keys find a place: a load of 3/4, in whole sets."""
    return -(-max_keys * 4 // (3 * WAYS)) * WAYS


def words_for(limit: Limit) -> int:
    """Return the number of words of a state in the table that keeps this limit's states.

    Where larger limits keep larger states, sizes are rounded up by at most an eighth: a limit that grows a little
    stays in its table, and the number of tables stays small.
    """
    words = limit.step.words(limit.params)
    grain = 1 << max(0, words.bit_length() - 4) if limit.step.SIZED else 1
    return -(-words // grain) * grain


def read_clock(clock: Clock) -> int:
    """Return the clock's instant, checked: a broken clock must not be able to corrupt a state."""
    now = clock.now_us()
    if type(now) is not int or not 0 <= now < EXACT:
        raise HeadgateError(
            f"the clock must return whole microseconds since the epoch, 0 to 2**53; {clock!r} returned {now!r}"
        )
    return now
