"""Every store passes the exported suite."""

from __future__ import annotations

from headgate import MemoryStore
from headgate.testing import ManualClock, ReferenceStore, StoreSuite


class TestMemory(StoreSuite):
    def store(self, clock: ManualClock) -> MemoryStore:
        """The default home, on the chosen engine."""
        return MemoryStore(clock=clock)


class TestReference(StoreSuite):
    def store(self, clock: ManualClock) -> ReferenceStore:
        """The definition passes its own suite."""
        return ReferenceStore(clock=clock)

    seeds = range(1)
