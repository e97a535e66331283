"""OpenAI, Azure OpenAI, Groq and others: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`.

Resets are durations, `6m0s` or `12ms`; Azure sends whole seconds, and -1 for what it does not know.
"""

from __future__ import annotations

from headgate.client.dialects.numbers import amount, total
from headgate.client.dialects.resets import reset_of
from headgate.client.dialects.response import Response
from headgate.client.told import Told


def read(response: Response) -> list[Told]:
    """Return the limits of requests and tokens that can be read."""
    told = []
    for unit in ("requests", "tokens"):
        size, left, renewal = (response.get(f"x-ratelimit-{field}-{unit}") for field in ("limit", "remaining", "reset"))
        limit, remaining, reset = total(size), amount(left), reset_of(response, renewal)
        if limit is not None or remaining is not None or reset is not None:
            told.append(Told(unit, limit, None, remaining, reset))
    return told
