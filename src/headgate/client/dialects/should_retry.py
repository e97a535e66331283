"""Whether the server asks for a retry or forbids it: `x-should-retry`, `Stripe-Should-Retry`, a pushback below 0."""

from __future__ import annotations

from typing import Final

from headgate.client.dialects.grpc import PUSHBACK
from headgate.client.dialects.response import Response

_WORDS: Final = {"true": True, "false": False}


def should_retry(response: Response) -> bool | None:
    """Return the wish of the server; None if it has none."""
    if response.get(PUSHBACK).startswith("-"):
        return False
    for name in ("x-should-retry", "stripe-should-retry"):
        wish = _WORDS.get(response.get(name).lower())
        if wish is not None:
            return wish
    return None
