"""The wait before the next attempt: exponential, with full jitter, unless the server tells a time.

Full jitter (Brooker, "Exponential backoff and jitter", 2015) draws from the whole span, so that callers who failed
together do not come back together.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random as draw
from typing import Final

from headgate.client.arguments import checked_count, checked_seconds

_LARGEST_EXPONENT: Final = 1023
"""A float holds no larger power of two; any ceiling is far below it."""


def backoff(
    attempt: int,
    base: float = 0.5,
    ceiling: float = 30,
    retry_after: float | None = None,
    random: Callable[[], float] = draw,
) -> float:
    """Return the seconds to wait after a failed attempt; the first attempt is number 0.

    The wait is between 0 and min(`base` x 2^`attempt`, `ceiling`). A time that the server told, `retry_after`, is
    returned as it is, also above the ceiling: a caller that does not want to wait so long gives up.
    """
    checked_count("attempt", attempt, 0)
    base, ceiling = checked_seconds("base", base, above_zero=True), checked_seconds("ceiling", ceiling)
    if retry_after is not None:
        return checked_seconds("retry_after", retry_after)
    return random() * min(base * 2.0 ** min(attempt, _LARGEST_EXPONENT), ceiling)
