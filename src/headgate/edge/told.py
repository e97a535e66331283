"""A decision as JSON: every field of `Decision`. A wait that is never over, or not known, is null."""

from __future__ import annotations

import math
from typing import Any

from headgate.decision import Decision


def told(decision: Decision | None) -> dict[str, Any]:
    """Return the fields of a decision; None if no limit was asked, which leaves all of them null but `allowed`."""
    if decision is None:
        return NOTHING_ASKED.copy()
    return {
        "allowed": decision.allowed,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after": finite(decision.retry_after),
        "reset_after": finite(decision.reset_after),
        "retry_us": known(decision.retry_us),
        "reset_us": known(decision.reset_us),
        "granted": decision.granted,
        "never": decision.never,
        "unknown": decision.unknown,
        "degraded": decision.degraded,
        "binding": str(decision.binding),
        "costs": list(decision.costs),
        "calls": [{"limit": str(call.limit), "key": call.key, "cost": call.cost} for call in decision.calls],
        "verdicts": [
            {
                "allowed": each.allowed,
                "remaining": each.remaining,
                "retry_us": known(each.retry_us),
                "reset_us": known(each.reset_us),
            }
            for each in decision.verdicts
        ],
    }


def finite(seconds: float) -> float | None:
    """Return seconds, or null."""
    return seconds if math.isfinite(seconds) else None


def known(us: int) -> int | None:
    """Return microseconds, or null."""
    return us if us >= 0 else None


NOTHING_ASKED: dict[str, Any] = {
    "allowed": True, "limit": None, "remaining": None, "retry_after": None, "reset_after": None, "retry_us": None,
    "reset_us": None, "granted": None, "never": False, "unknown": False, "degraded": False, "binding": None,
    "costs": [], "calls": [], "verdicts": [],
}  # fmt: skip
