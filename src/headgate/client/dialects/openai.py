"""OpenAI, Azure OpenAI, Groq and others: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`.

Resets are durations, `6m0s` or `12ms`; Azure sends whole seconds, and -1 for what it does not know. No window is told.
Tokens are counted by the minute; requests by the minute or, for small accounts, by the day. Their limit is a bucket,
and a reset the time until the bucket is full: of 500 a minute one request takes 120 ms, of 200 a day seven minutes.
"""

from __future__ import annotations

from typing import Final

from headgate.client.dialects.numbers import amount, total
from headgate.client.dialects.resets import reset_of
from headgate.client.dialects.response import Response
from headgate.client.server_limits import ServerLimit

MINUTE: Final = 60.0
DAY: Final = 86_400.0
BETWEEN: Final = 2_300.0
"""The geometric mean of both: resets are rounded, so a window is found by its order of magnitude."""


def read(response: Response) -> list[ServerLimit]:
    """Return the limits of requests and tokens that can be read."""
    told = []
    for unit in ("requests", "tokens"):
        size, left, renewal = (response.get(f"x-ratelimit-{field}-{unit}") for field in ("limit", "remaining", "reset"))
        limit, remaining, reset = total(size), amount(left), reset_of(response, renewal)
        if limit is not None or remaining is not None or reset is not None:
            told.append(ServerLimit(unit, limit, _window(unit, limit, remaining, reset), remaining, reset))
    return told


def _window(unit: str, limit: int | None, remaining: int | None, reset: float | None) -> float | None:
    """Return the window: a day if the missing requests take so long that it can be no minute."""
    if limit is None:
        return None
    if unit == "requests" and remaining is not None and remaining < limit and reset:
        return DAY if limit * reset / (limit - remaining) > BETWEEN else MINUTE
    return MINUTE
