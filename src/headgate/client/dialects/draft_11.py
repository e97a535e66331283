"""`RateLimit` and `RateLimit-Policy` in the syntax of draft-ietf-httpapi-ratelimit-headers-11, and of its successors.

    RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
    RateLimit: "burst";r=50;t=30, "daily";r=950;t=4320

Newer texts of the draft may call `r` and `t` of `RateLimit` `a` and `w`.
"""

from __future__ import annotations

from headgate.client.dialects.names import name_of
from headgate.client.dialects.numbers import amount, seconds, total
from headgate.client.dialects.response import Response
from headgate.client.dialects.structured import Item, items_of
from headgate.client.server_limits import ServerLimit


def _named(text: str) -> dict[str, Item]:
    return {item.value: item for item in items_of(text) if not item.is_number}


def _counts_requests(policy: Item | None) -> bool:
    """Whether a policy counts requests over time, as opposed to bytes or to requests in flight."""
    return policy is None or policy.parameters.get("qu", "requests") == "requests"


def _told(name: str, policy: Item | None, state: Item | None) -> ServerLimit | None:
    quota = policy.parameters if policy else {}
    left = state.parameters if state else {}
    available, until = ("a", "w") if "a" in left else ("r", "t")
    limit, window = total(quota.get("q", "")), seconds(quota.get("w", "")) or None
    remaining, reset = amount(left.get(available, "")), seconds(left.get(until, ""))
    if limit is None and remaining is None:
        return None
    return ServerLimit(name_of(name), limit, window, remaining, reset)


def read(response: Response) -> list[ServerLimit]:
    """Return a limit for each policy that counts requests."""
    policies, states = _named(response.get("ratelimit-policy")), _named(response.get("ratelimit"))
    found = (
        _told(name, policies.get(name), states.get(name))
        for name in {**states, **policies}
        if _counts_requests(policies.get(name))
    )
    return [told for told in found if told is not None]
