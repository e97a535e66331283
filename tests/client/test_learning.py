"""The limits that a key learns from its server."""

from __future__ import annotations

import pytest

from headgate.client.learning import Learned
from headgate.client.server_limits import ServerLimit
from headgate.clock import SECOND

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(("reset", "window"), [(1.0, 1), (2.0, 1), (9.0, 10), (11.0, 10), (59.0, 60), (3600.0, 3600)])
def test_a_window_that_is_not_told_is_guessed_by_its_reset(reset: float, window: int):
    """Servers tell resets in whole seconds, rounded up: a window of one second may be told to end in two."""
    learned = Learned((), 0.02, tokens=False)
    learned.hear([ServerLimit(limit=200, remaining=199, reset=reset)], SECOND)
    assert [(limit.amount, limit.period_us // SECOND) for limit in learned.limits] == [(200, window)]
