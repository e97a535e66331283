"""Stores that decide in this process, each by a clock that stands still."""

from __future__ import annotations

import pytest

from headgate import MemoryStore
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from headgate.testing import ManualClock, ReferenceStore

NOW = 1_000_000_020.0
needs_shared = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
HOMES = ["memory", "reference", pytest.param("shared", marks=needs_shared)]


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture(params=HOMES)
def store(request, tmp_path, clock):
    """A store that decides in this process."""
    if request.param == "shared":
        return SharedStore(str(tmp_path / "store"), clock=clock)
    return (MemoryStore if request.param == "memory" else ReferenceStore)(clock=clock)
