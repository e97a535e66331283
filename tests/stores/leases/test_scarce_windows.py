"""Fixed windows that many processes share: how much of one a question takes."""

from __future__ import annotations

import pytest

from headgate import Limit
from headgate.stores.leases.grants import Held
from headgate.stores.leases.turns import Turns

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(("wanted", "half_places"), [(10, 6), (11, 3)])
def test_a_process_that_wants_an_equal_part_of_a_window_takes_more_of_it_at_once(wanted, half_places):
    """Of 10,000 units a thousand processes have ten each: one that wants eleven shares with those that come later."""
    turns = Turns((Limit.parse("10000/second by fixed-window"),), lambda: 0.0)
    turns.nodes, held = 1000, Held.__new__(Held)
    held.wanted, held.turn_us = wanted, 0
    assert turns.numbers(held, True, 0)[-4:] == (0, 1, 0, half_places)
