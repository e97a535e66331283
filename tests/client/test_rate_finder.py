"""The rate that is found from refusals: how it begins, falls, and grows."""

from __future__ import annotations

import pytest

from headgate.client.rate_finder import LEAST_RATE, RateFinder
from headgate.clock import SECOND

pytestmark = pytest.mark.engineless


def asking(rate: int, passing: int, seconds: int) -> RateFinder:
    """Return a finder after requests at one rate, of which some passed."""
    finder = RateFinder()
    for number in range(rate * seconds):
        now = number * SECOND // rate
        finder.sent(now)
        if number % rate < passing:
            finder.passed(now)
    return finder


def test_there_is_no_rate_before_a_refusal():
    """A server that refuses nothing is asked as often as callers wish."""
    assert asking(100, 100, 4).rate(4 * SECOND) is None


def test_the_first_refusal_begins_at_the_rate_of_what_was_sent():
    """Answers are late, so that less has passed yet than will."""
    finder = asking(100, 80, 4)
    finder.refused(4 * SECOND)
    assert finder.rate(4 * SECOND) == 100


def test_a_rate_falls_to_what_passes_once_a_second():
    """To 95 % of what passed in the last seconds, since the first request; a refusal within the second adds nothing."""
    finder = asking(100, 80, 4)
    finder.refused(4 * SECOND)
    finder.refused(5 * SECOND - 1)
    assert finder.rate(5 * SECOND - 1) == 100
    finder.refused(5 * SECOND)
    assert finder.rate(5 * SECOND) == 0.7 * 100  # 320 in 4.5 s are 71; of those, 95 % would be less than 70 %


def test_a_rate_never_falls_to_nothing():
    """A server that refuses everything is still asked, every five seconds."""
    finder = asking(10, 0, 4)
    for second in range(4, 40):
        finder.refused(second * SECOND)
    assert finder.rate(40 * SECOND) == LEAST_RATE


def test_a_rate_that_is_not_used_does_not_grow():
    """Growth asks the server for more, and nobody asks."""
    finder = asking(100, 100, 4)
    finder.refused(4 * SECOND)
    assert finder.rate(60 * SECOND) == 100


def test_a_first_rate_is_a_guess_that_grows_until_the_next_refusal():
    """By a quarter each second; then the last step is taken back, although less passed in the last seconds."""
    finder = RateFinder()
    for number in range(15):  # a crowd that begins: refused after 15 ms
        finder.sent(number * 1_000)
    finder.refused(15_000)
    rates = []
    for second in range(1, 4):
        finder.waited()
        finder.passed(second * SECOND, 15)
        rates.append(finder.rate(second * SECOND + 15_000))
    assert rates == [15 * 1.25, 15 * 1.25**2, 15 * 1.25**3]
    finder.refused(4 * SECOND)
    assert finder.rate(4 * SECOND) == 15 * 1.25**2


def test_a_rate_grows_faster_with_time():
    """By 0.2 % in the first second, twice as fast after each 10 s without a refusal, at most by 5 %."""
    grown = []
    for quiet in (10, 20, 100):
        finder = asking(100, 100, 4)
        for second in (4, 5):
            finder.refused(second * SECOND)
        before = finder.rate(5 * SECOND) or 0
        finder.waited()
        grown.append((finder.rate((5 + quiet) * SECOND) or 0) / before)
    assert [round(rate, 6) for rate in grown] == [1.004, 1.008, 1.05]


def test_a_caller_that_asks_now_and_then_finds_no_rate():
    """Three requests in 4 s tell nothing about the limit."""
    finder = RateFinder()
    for second in (0, 2, 4):
        finder.sent(second * SECOND)
    finder.refused(4 * SECOND)
    assert finder.rate(4 * SECOND) is None
