"""GitHub: `X-RateLimit-*` with a resource, and two refusals that are not a 429.

A 403 with nothing remaining is a refusal until the reset. "Secondary rate limit" in the body is one too; GitHub's
documentation says to wait at least a minute if the response tells no time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headgate.client.dialects.names import name_of
from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.server_limits import ServerLimit

SECONDARY_WAIT: Final = 60.0


def is_secondary(response: Response) -> bool:
    """Whether the body tells of the secondary limit, in a refusal."""
    return response.status in (403, 429) and b"secondary rate" in response.body.lower()


def is_refusal(response: Response) -> bool:
    """Whether a 403 is the refusal of a limit."""
    return response.status == 403 and (response.get("x-ratelimit-remaining") == "0" or is_secondary(response))


def read(response: Response) -> list[ServerLimit]:
    """Return the limit of the resource, or the wait for the secondary limit."""
    secondary = is_secondary(response)
    resource = name_of(response.get("x-ratelimit-resource"))
    if resource is None and not secondary:
        return []
    told = read_three(response, "x-ratelimit", resource) or ([ServerLimit(resource)] if secondary else [])
    if secondary and told[0].remaining != 0:
        return [replace(told[0], retry_after=SECONDARY_WAIT)]
    return told
