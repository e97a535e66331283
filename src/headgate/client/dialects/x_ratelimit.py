"""`X-RateLimit-Limit`, `-Remaining` and `-Reset`, or `X-Rate-Limit-*`.

The reset is a time from now at some servers, and at others an epoch in seconds or milliseconds, or a date.
"""

from __future__ import annotations

from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the limit in fields that begin with `X-`."""
    return read_three(response, "x-ratelimit") or read_three(response, "x-rate-limit")
