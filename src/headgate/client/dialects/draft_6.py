"""`RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts before the seventh. GitLab's reset is an epoch."""

from __future__ import annotations

from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.told import Told


def read(response: Response) -> list[Told]:
    """Return the limit in the fields of the older drafts."""
    return read_three(response, "ratelimit")
