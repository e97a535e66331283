"""Shopify: `X-Shopify-Shop-Api-Call-Limit: 32/40`, the used part of a leaking bucket and its size."""

from __future__ import annotations

from headgate.client.dialects.numbers import amount, total
from headgate.client.dialects.response import Response
from headgate.client.server_limits import ServerLimit


def read(response: Response) -> list[ServerLimit]:
    """Return the size of the bucket and its room."""
    before, _, size = response.get("x-shopify-shop-api-call-limit").partition("/")
    used, limit = amount(before), total(size)
    return [] if used is None or limit is None else [ServerLimit(limit=limit, remaining=max(0, limit - used))]
