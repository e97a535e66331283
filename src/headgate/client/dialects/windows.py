"""The window of a limit in the older drafts: `100, 100;w=60, 5000;w=3600`, the limit first, then all quotas."""

from __future__ import annotations

from headgate.client.dialects.numbers import seconds, total
from headgate.client.dialects.structured import items_of


def window_of(limit: int | None, quotas: str) -> float | None:
    """Return the window of the quota with this amount; None if several quotas have it."""
    windows = {
        item.parameters["w"]
        for item in items_of(quotas)
        if item.is_number and "w" in item.parameters and total(item.value) == limit
    }
    return seconds(windows.pop()) or None if limit is not None and len(windows) == 1 else None


def limit_of(text: str) -> int | None:
    """Return the limit that applies: the first number."""
    return total(text.partition(",")[0].partition(";")[0].strip())
