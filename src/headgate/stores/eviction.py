"""What is said when a table is full: a key was forgotten that had something in use, so its next request starts anew."""

from __future__ import annotations

from typing import Any, Final

from headgate.limit import Limit
from headgate.wording import log_of

WORD: Final = 8


def warn_of_eviction(limit: Limit, table: Any) -> None:  # noqa: ANN401 - a table of either twin, private or shared
    """Once for each table: which it is, how many keys fit, and what twice as many would take."""
    slot = WORD * (1 + table.words + (limit.block_us > 0))
    log_of("headgate").warning(
        "the table of %s limits (such as %s) is full: one of its %d keys was forgotten while it had something in use, "
        "and more will be. Twice as many keys (max_keys=%d) take %d bytes",
        limit.family, limit, table.slots, table.slots * 3 // 2, table.slots * 2 * slot,
    )  # fmt: skip
