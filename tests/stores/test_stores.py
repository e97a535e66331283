"""Every store passes the exported suite."""

from __future__ import annotations

import itertools
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headgate import Limiter, MemoryStore, StoreError
from headgate.engine import NATIVE
from headgate.stores import Store
from headgate.stores.shared import SharedStore
from headgate.stores.sql.sqlite import SqliteStore
from headgate.testing import ManualClock, ReferenceStore, StoreSuite
from tests.support import ROOT
from tests.support.stores import away


class TestMemory(StoreSuite):
    def store(self, clock: ManualClock) -> MemoryStore:
        """The default home, on the chosen engine."""
        return MemoryStore(clock=clock)


class TestReference(StoreSuite):
    def store(self, clock: ManualClock) -> ReferenceStore:
        """The definition passes its own suite."""
        return ReferenceStore(clock=clock)

    seeds = range(1)


class TestOfTheDocs(StoreSuite):
    """The store that docs/stores.md shows."""

    def store(self, clock: ManualClock) -> Store:
        """Made of the page's own words."""
        made: Store = _shown()["DictStore"](clock)
        return made

    seeds = range(1)

    def test_it_is_a_short_read(self) -> None:
        """A store is under sixty lines of Python."""
        assert len([line for line in _BLOCKS[0].splitlines() if line.strip()]) < 60


_BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/stores.md").read_text(), re.MULTILINE | re.DOTALL)


@cache
def _shown() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(_BLOCKS[0], names)
    return names


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
class TestShared(StoreSuite):
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path):
        self.folders = (str(tmp_path / f"store{n}") for n in itertools.count())

    def store(self, clock: ManualClock) -> Store:
        """A directory that nobody else has."""
        return SharedStore(next(self.folders), max_keys=1_000, clock=clock)


class TestSqlite(StoreSuite):
    seeds = range(1)
    steps = 60

    @pytest.fixture(autouse=True)
    def _files(self):
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            self.paths = (f"sqlite://{folder}/limits{n}.db" for n in itertools.count())
            self.opened: list[SqliteStore] = []
            yield
            for store in self.opened:
                store.close()

    def store(self, clock: ManualClock) -> Store:
        """A file that nobody else has."""
        self.opened.append(SqliteStore(next(self.paths), deadline=10, clock=clock))
        return self.opened[-1]


@pytest.mark.parametrize(("on_error", "passed"), [("local", [1, 1, 0]), ("deny", [0] * 3), ("allow", [1] * 3)])
def test_a_store_of_ones_own_that_cannot_answer_is_answered_for(on_error, passed):
    """A `StoreError` of any store is for `on_error`: a caller gets a degraded decision, or the error itself."""
    limiter = Limiter("2/hour", store=away(), on_error=on_error)
    decisions = [limiter.hit("k") for _ in range(3)]
    assert [int(decision.allowed) for decision in decisions] == passed
    assert all(decision.degraded for decision in decisions)
    with pytest.raises(StoreError, match="the cable was cut"):
        Limiter("2/hour", store=away(), on_error="raise").hit("k")
