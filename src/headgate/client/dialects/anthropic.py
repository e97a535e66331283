"""Anthropic: `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`.

Resets are instants of RFC 3339.
"""

from __future__ import annotations

from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.told import Told


def read(response: Response) -> list[Told]:
    """Return the limits of requests and of each kind of tokens that can be read."""
    units = ("requests", "tokens", "input-tokens", "output-tokens")
    return [told for unit in units for told in read_three(response, f"anthropic-ratelimit-{unit}", unit)]
