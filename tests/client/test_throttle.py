"""The throttle: a ledger of its chance, and a server that fails and recovers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from headgate.client.throttle import Throttle
from headgate.clock import SECOND

pytestmark = pytest.mark.engineless


def throttled(requests: int, accepts: int) -> Throttle:
    """A throttle after some requests, of which the server has accepted some."""
    throttle = Throttle()
    for number in range(requests):
        throttle.count(0, accepted=number < accepts)
    return throttle


@pytest.mark.parametrize(
    ("requests", "accepts", "chance"),
    [
        (0, 0, 0),
        (9, 0, 0),
        (10, 0, 0.9),
        (10, 5, 0),
        (19, 9, 0.05),
        (20, 10, 0),
        (99, 24, 0.51),
        (99, 5, 0.89),
        (99, 0, 0.9),
    ],
)
def test_a_ledger_of_chances(requests, accepts, chance):
    """None while half is accepted or few are known; then (requests - 2 accepts) / (requests + 1), at most 0.9."""
    assert throttled(requests, accepts).chance(0) == chance


def test_chance_decides():
    """A draw below the chance refuses; a request that is refused here counts, one that is let through not yet."""
    throttle = throttled(99, 24)
    assert throttle.refuses(0, lambda: 0.5) is True
    assert throttle.chance(0) == 52 / 101
    assert throttle.refuses(0, lambda: 0.52) is False
    assert throttle.chance(0) == 52 / 101


def test_a_server_that_accepts_all_is_never_refused():
    """Not even by the smallest draw; chance is not asked at all."""
    throttle = Throttle()
    for now in range(1000):
        assert throttle.refuses(now * SECOND, lambda: pytest.fail("chance was asked")) is False
        throttle.count(now * SECOND, accepted=True)


def test_requests_without_an_outcome_say_nothing():
    """A thousand requests may be under way before the first answer, and none of them is refused here."""
    throttle = Throttle()
    assert not any(throttle.refuses(0, lambda: 0.0) for _ in range(1000))


def test_two_minutes_are_remembered():
    """Requests and accepts are forgotten between 110 and 120 s later."""
    throttle = throttled(99, 0)
    assert {at: throttle.chance(at * SECOND) for at in (0, 60, 119, 120)} == {0: 0.9, 60: 0.9, 119: 0.9, 120: 0}


def test_a_dead_server_gets_a_tenth_and_a_recovered_one_everything():
    """At 100 requests/s: two minutes after the death a tenth is sent, four minutes after the recovery everything."""
    throttle, random = Throttle(), Random(1)
    passed = [0] * 600
    for second in range(600):
        for part in range(100):
            now = second * SECOND + part * SECOND // 100
            if not throttle.refuses(now, random.random):
                passed[second] += 1
                throttle.count(now, accepted=not 120 <= second < 300)
    assert passed[:120] == [100] * 120
    assert 540 <= sum(passed[240:300]) <= 660
    assert passed[540:] == [100] * 60


def test_threads_count_exactly():
    """No request is lost: 8,000 of eight threads, of which none was accepted but 3,000."""
    throttle = Throttle()

    def work(_):
        for number in range(1000):
            throttle.count(0, accepted=number < 375)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert throttle.chance(0) == (8000 - 2 * 3000) / 8001
