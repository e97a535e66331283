"""The crowd that comes back after an outage is no larger than usual, whatever the server told it."""

from __future__ import annotations

import pytest

from tests.support.virtual_outage import Tell, outage, ten_seconds, the_end, untold

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("tell", "pause"),
    [(untold, 6), (ten_seconds, 2), (the_end, 2)],
    ids=["untold", "ten seconds", "the end"],
)
def test_a_crowd_does_not_come_back_as_one(tell: Tell, pause: float):
    """200 programs fail for a minute. The busiest second after it has at most half more requests than a usual second:
    full jitter and the throttle spread those that were told nothing; a told time is spread by up to half of itself."""
    seconds = outage(tell, clients=200, pause=pause, around=15)
    assert seconds.peak <= 1.5
    assert sum(seconds.after) > 0.3 * seconds.usual * len(seconds.after)
