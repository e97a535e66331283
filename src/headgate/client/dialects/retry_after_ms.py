"""`retry-after-ms`, which LLM providers send, and `x-ms-retry-after-ms` of Azure: exact to the millisecond."""

from __future__ import annotations

from headgate.client.dialects.numbers import LONGEST, number
from headgate.client.dialects.response import Response
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the wait, if the response tells it in milliseconds."""
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        found = number(response.get(name))
        if found is not None and found / 1000 <= LONGEST:
            return [ServerLimit(retry_after=found / 1000)]
    return []
