"""Anthropic: `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`.

Resets are instants of RFC 3339. No window is told: every limit is one of a minute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headgate.client.dialects.response import Response
from headgate.client.dialects.three import read_three
from headgate.client.server_limits import ServerLimit

MINUTE: Final = 60.0


def read(response: Response) -> list[ServerLimit]:
    """Return the limits of requests and of each kind of tokens that can be read."""
    units = ("requests", "tokens", "input-tokens", "output-tokens")
    each = [told for unit in units for told in read_three(response, f"anthropic-ratelimit-{unit}", unit)]
    return [told if told.limit is None else replace(told, window=MINUTE) for told in each]
