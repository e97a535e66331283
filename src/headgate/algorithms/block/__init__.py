"""`block TIME`, a modifier of any step: once refused, a key stays refused for at least this time.

The state has one more integer, the instant until which the key is blocked. A block runs from the first refusal, and
further requests do not prolong it. It is longer than TIME only where a refusal has promised a later retry: a cost may
need longer than the block.

`block 1m, 10m within 1d` grows: a key that is refused again within the memory, a time after the end of its last block,
is blocked for the next of the times. The integer then is a multiple of 8, the end of the block, plus the number of the
time: such a block is up to 7 microseconds longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.algorithms.contract import NEVER, Verdict

MOST_TIMES: Final = 7
"""The most times of a block that grows."""
PLACES: Final = MOST_TIMES + 1


def shut(until: int, block_us: int, now: int, cost: int, answer: Callable[[int], Verdict]) -> tuple[Verdict, int]:
    """Apply the block to `answer`, the step's answer to a cost; return the verdict and the instant to keep on a hit."""
    verdict = answer(cost)
    if verdict.allowed and cost and until > now:
        verdict = answer(0)._replace(allowed=False)
    # A block longer than any that can be set means that the clock stepped back: cut it to the longest possible one.
    left = min(max(0, until - now), max(block_us, verdict.reset_us))
    if verdict.allowed or verdict.retry_us == NEVER:
        remaining = 0 if left else verdict.remaining
        return verdict._replace(remaining=remaining, reset_us=max(verdict.reset_us, left)), until
    retry = max(left or block_us, verdict.retry_us)
    return verdict._replace(remaining=0, retry_us=retry, reset_us=max(verdict.reset_us, retry)), now + retry


def shut_growing(
    word: int, growth: tuple[int, ...], now: int, cost: int, answer: Callable[[int], Verdict]
) -> tuple[Verdict, int]:
    """Like `shut`, for a block that grows: `growth` has the memory, then `MOST_TIMES` times."""
    until, nth = end_of(word), word % PLACES
    if until > now:
        block_us = growth[nth] + PLACES - 1
    else:
        nth = min(nth + 1, MOST_TIMES) if nth and now < until + growth[0] else 1
        block_us = growth[nth]
    verdict, ends = shut(until, block_us, now, cost, answer)
    if verdict.allowed or verdict.retry_us == NEVER:
        return verdict, word
    ends = end_of(ends + PLACES - 1)
    return verdict._replace(retry_us=ends - now, reset_us=max(verdict.reset_us, ends - now)), ends + nth


def end_of(word: int) -> int:
    """Return the end of a block that grows."""
    return word - word % PLACES
