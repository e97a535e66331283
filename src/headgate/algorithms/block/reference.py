"""`block TIME`, a modifier of any step: once refused, a key stays refused for at least the time given.

The state is one more integer, the instant until which the key is shut. The block runs from the first refusal and is
not prolonged by knocking; it only stretches to whatever instant it has itself promised as a retry, so that the
promise holds for costs that need longer than the block.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.algorithms.contract import NEVER, Verdict


def shut(until: int, block_us: int, now: int, cost: int, answer: Callable[[int], Verdict]) -> tuple[Verdict, int]:
    """What `answer`, the step's own answer to a cost, becomes under the block; and the instant to keep after a hit."""
    verdict = answer(cost)
    if verdict.allowed and cost and until > now:
        verdict = answer(0)._replace(allowed=False)
    # A block longer than it could have been set for means the clock stepped back: it is cut to what it can explain.
    left = min(max(0, until - now), max(block_us, verdict.reset_us))
    if verdict.allowed or verdict.retry_us == NEVER:
        remaining = 0 if left else verdict.remaining
        return verdict._replace(remaining=remaining, reset_us=max(verdict.reset_us, left)), until
    retry = max(left or block_us, verdict.retry_us)
    return verdict._replace(remaining=0, retry_us=retry, reset_us=max(verdict.reset_us, retry)), now + retry
