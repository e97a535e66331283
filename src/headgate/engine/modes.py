"""What both twins agree on before they differ."""

from __future__ import annotations

from typing import Final

from headgate.algorithms.contract import EXACT
from headgate.clock import HOUR, Clock
from headgate.errors import HeadgateError
from headgate.layout import WAYS
from headgate.limit import Limit

TAKE: Final = 0
"""Charge if all allow."""
PEEK: Final = 1
"""Answer as TAKE would; write nothing."""
UP_TO: Final = 2
"""Charge as much of the cost as fits, at least 1."""
RESERVE: Final = 3
"""As TAKE, and where the step lends also what fits within the wait given: the answer's retry is then the delay."""

LEASED: Final = -2
"""The mark of a charge that was paid from a lease; its number is the lease's."""
LONGEST_WAIT: Final = HOUR
"""What is lent is paid back within this time: a bucket further ahead is taken for a clock that stepped back."""


def slots_for(max_keys: int) -> int:
    """How many keys there is room for, so that `max_keys` of them find a place: a load of 3/4, in whole sets."""
    return -(-max_keys * 4 // (3 * WAYS)) * WAYS


def words_for(limit: Limit) -> int:
    """How many words a state has in the table that this limit's states are kept in.

    Where larger limits keep larger states, sizes are rounded up by at most an eighth: a number that grows a little
    stays in its table, and there are few tables whatever the numbers are.
    """
    words = limit.step.words(limit.params)
    grain = 1 << max(0, words.bit_length() - 4) if limit.step.SIZED else 1
    return -(-words // grain) * grain


def read_clock(clock: Clock) -> int:
    """One instant, refused if it is no instant: a broken clock must not be able to corrupt a state."""
    now = clock.now_us()
    if type(now) is not int or not 0 <= now < EXACT:
        raise HeadgateError(
            f"the clock must tell whole microseconds since the epoch, 0 to 2**53; {clock!r} said {now!r}"
        )
    return now
