"""Every store passes the exported suite."""

from __future__ import annotations

import itertools

import pytest

from headgate import MemoryStore
from headgate.engine import NATIVE
from headgate.stores import Store
from headgate.stores.shared import SharedStore
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


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
class TestShared(StoreSuite):
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path):
        self.folders = (str(tmp_path / f"store{n}") for n in itertools.count())

    def store(self, clock: ManualClock) -> Store:
        """A directory that nobody else has."""
        return SharedStore(next(self.folders), max_keys=1_000, clock=clock)
