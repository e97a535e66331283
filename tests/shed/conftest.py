"""Time for load shedders."""

from __future__ import annotations

import pytest

from headgate.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Time that a test moves."""
    return ManualClock()
