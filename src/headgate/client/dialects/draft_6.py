"""`RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts before the seventh. GitLab's reset is an epoch."""

from __future__ import annotations

from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the limit in the fields of the older drafts."""
    return read_three(response, "ratelimit")
