"""The reset of a limit, in all the forms that servers give it under one name."""

from __future__ import annotations

from typing import Final

from headgate.client.dialects.instants import http_date, iso_date
from headgate.client.dialects.numbers import LONGEST, duration, number
from headgate.client.dialects.response import Response

_EPOCH: Final = 1e9
"""A larger number is an instant in seconds since the epoch, not a time from now: 10^9 s are 31 years."""
_EPOCH_MS: Final = 1e12
"""A larger number is an instant in milliseconds."""


def reset_of(response: Response, text: str) -> float | None:
    """Return the seconds until a reset: told in seconds, as a duration, or as an instant."""
    found = number(text.partition(",")[0])
    if found is None:
        if (given := duration(text)) is not None:
            return given
        instant = iso_date(text)
        return response.until(http_date(text) if instant is None else instant)
    if found > _EPOCH:
        return response.until(found / 1000 if found > _EPOCH_MS else found)
    return found if found <= LONGEST else None
