"""Discord: `X-RateLimit-*` with a bucket and the seconds until its reset; `X-RateLimit-Global` for all buckets."""

from __future__ import annotations

from dataclasses import replace

from headgate.client.dialects.names import name_of
from headgate.client.dialects.numbers import seconds
from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the limit of the bucket; in a refusal of all buckets, its name is "global"."""
    is_global = response.get("x-ratelimit-global").lower() == "true"
    name = "global" if is_global else name_of(response.get("x-ratelimit-bucket"))
    exact = seconds(response.get("x-ratelimit-reset-after"))
    if name is None and exact is None:
        return []
    told = read_three(response, "x-ratelimit", name) or [ServerLimit(name)]
    return told if exact is None else [replace(told[0], reset=exact)]
