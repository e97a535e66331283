"""`block TIME`, a modifier of any step: once refused, a key stays refused for at least this time.

The state has one more integer, the instant until which the key is blocked. A block runs from the first refusal, and
further requests do not prolong it. It is longer than TIME only where a refusal has promised a later retry: a cost may
need longer than the block.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.algorithms.contract import NEVER, Verdict


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
