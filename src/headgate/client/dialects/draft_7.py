"""`RateLimit: limit=100, remaining=50, reset=30` of the seventh draft, with `RateLimit-Policy: 100;w=60`."""

from __future__ import annotations

import re
from typing import Final

from headgate.client.dialects.numbers import amount, seconds, total
from headgate.client.dialects.response import Response
from headgate.client.dialects.windows import window_of
from headgate.client.server_limits import ServerLimit

_MEMBER: Final = re.compile(r"[ \t]*(limit|remaining|reset)=([0-9.]{1,20})[ \t]*(?:;[^,]*)?")


def read(response: Response) -> list[ServerLimit]:
    """Return the limit, if the field has this form."""
    members: dict[str, str] = {}
    for part in response.get("ratelimit").split(","):
        found = _MEMBER.fullmatch(part)
        if found is None:
            return []
        members[found[1]] = found[2]
    limit = total(members.get("limit", ""))
    remaining, reset = amount(members.get("remaining", "")), seconds(members.get("reset", ""))
    if limit is None and remaining is None and reset is None:
        return []
    return [ServerLimit(None, limit, window_of(limit, response.get("ratelimit-policy")), remaining, reset)]
