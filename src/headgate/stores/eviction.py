"""The warning of a full table: a key with quota in use was dropped, so its next request starts with a full limit."""

from __future__ import annotations

from typing import Any, Final

from headgate.limit import Limit
from headgate.wording import log_of

WORD: Final = 8


def warn_of_eviction(limit: Limit, table: Any) -> None:  # noqa: ANN401 - a table of either twin, private or shared
    """Name the table, the number of keys that fit, and the bytes for twice as many. Called once for each table."""
    slot = WORD * (1 + table.words + (limit.block_us > 0))
    log_of("headgate").warning(
        "the table of %s limits (such as %s) is full: one of its %d keys was dropped while it had quota in use, "
        "and more will be. Twice as many keys (max_keys=%d) take %d bytes",
        limit.family, limit, table.slots, table.slots * 3 // 2, table.slots * 2 * slot,
    )  # fmt: skip
