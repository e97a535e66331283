"""Limit, remaining and reset in a field each, under any prefix."""

from __future__ import annotations

from headgate.client.dialects.numbers import amount
from headgate.client.dialects.resets import reset_of
from headgate.client.dialects.response import Response
from headgate.client.dialects.windows import limit_of, window_of
from headgate.client.server_limits import ServerLimit


def read_three(response: Response, prefix: str, name: str | None = None) -> list[ServerLimit]:
    """Return the limit in `<prefix>-limit`, `-remaining` and `-reset`, if any of them can be read."""
    quotas, left, renewal = (response.get(f"{prefix}-{field}") for field in ("limit", "remaining", "reset"))
    if not (quotas or left or renewal):
        return []
    limit, remaining, reset = limit_of(quotas), amount(left.partition(",")[0]), reset_of(response, renewal)
    if limit is None and remaining is None and reset is None:
        return []
    window = window_of(limit, quotas) or window_of(limit, response.get("ratelimit-policy"))
    return [ServerLimit(name, limit, window, remaining, reset)]
