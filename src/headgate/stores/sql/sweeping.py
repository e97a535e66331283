"""The deletion of expired rows: after some of a store's own writes, a few rows at a time."""

from __future__ import annotations

from typing import Final

WRITES: Final = 64
"""The writes of this process between two sweeps."""
MOST_SWEPT: Final = 128
"""The most rows of a sweep: more than the writes that precede it, so that expired rows do not pile up."""


class Sweeping:
    """Counts writes. Threads may lose a count to each other, and then sweep a little later."""

    def __init__(self) -> None:
        self._writes = 0

    def wrote(self) -> None:
        """Count a write."""
        self._writes += 1

    def is_due(self) -> bool:
        """Return whether a sweep is due; the caller sweeps, and the count begins again."""
        if self._writes < WRITES:
            return False
        self._writes = 0
        return True
