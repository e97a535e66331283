"""OpenAI, Azure OpenAI, Groq and others: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`.

Resets are durations, `6m0s` or `12ms`; Azure sends whole seconds, and -1 for what it does not know. No window is told,
but the limits are buckets, by the minute or by the day, and a reset is the time until the bucket is full: of 500 a
minute, one request takes 120 ms.
"""

from __future__ import annotations

from typing import Final

from headgate.client.dialects.numbers import amount, total
from headgate.client.dialects.resets import reset_of
from headgate.client.dialects.response import Response
from headgate.client.told import Told

MINUTE: Final = 60.0
DAY: Final = 86_400.0
BETWEEN: Final = 2_300.0
"""The geometric mean of both: resets are rounded, so a window is found by its order of magnitude."""


def read(response: Response) -> list[Told]:
    """Return the limits of requests and tokens that can be read."""
    told = []
    for unit in ("requests", "tokens"):
        size, left, renewal = (response.get(f"x-ratelimit-{field}-{unit}") for field in ("limit", "remaining", "reset"))
        limit, remaining, reset = total(size), amount(left), reset_of(response, renewal)
        if limit is not None or remaining is not None or reset is not None:
            told.append(Told(unit, limit, _window(limit, remaining, reset), remaining, reset))
    return told


def _window(limit: int | None, remaining: int | None, reset: float | None) -> float:
    """Return the window by the time that the missing units take; a minute if nothing is missing."""
    if not limit or remaining is None or not reset or remaining >= limit:
        return MINUTE
    whole = limit * reset / (limit - remaining)
    return DAY if whole > BETWEEN else MINUTE
