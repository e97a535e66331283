"""Windows of tokens: how much of a limit calls may be charged, by what recent answers were like."""

from __future__ import annotations

import pytest

from headgate import Limit
from headgate.client.token_window import Spread, windows_of
from headgate.clock import MINUTE, SECOND

LIMIT = Limit(200_000, "minute", name="tokens")


def test_only_limits_of_tokens_have_windows():
    """A window has 480 slots and three more. Its amount is twice the limit: what was used is charged in any case."""
    (window,) = windows_of([Limit(500, "minute", name="requests"), LIMIT])
    assert (window.name, window.algorithm, window.amount) == ("tokens", "sliding-window/483", 400_000)
    assert window.period_us == MINUTE * 483 // 480 + 5_000  # up to a multiple of 10 ms


@pytest.mark.parametrize(("amount", "period"), [(1, "second"), (10**10, "day"), (10**11, "30 days")])
def test_every_limit_of_tokens_has_a_window(amount: int, period: str):
    """Few tokens a second, and more tokens a month than a window of microseconds could count."""
    (window,) = windows_of([Limit.parse(f"{amount}/{period} as tokens")])
    assert window.amount == 2 * amount


def test_without_answers_a_call_is_charged_as_expected():
    """The whole limit may be used then."""
    (window,) = windows_of([LIMIT])
    assert (Spread().charge(640), Spread().room(window).amount) == (640, 200_000)


def test_answers_of_one_length_leave_nothing_free():
    """A cost that is known beforehand is charged as it is; the first answer, which nothing was known about, is not
    weighed."""
    spread = Spread()
    spread.add(500, 4_096, 4_096, 5)
    for _ in range(50):
        spread.add(500, 500, 500, 5)
    (window,) = windows_of([LIMIT])
    assert (spread.charge(500), spread.room(window).amount) == (500, 200_000)


def test_answers_that_differ_leave_a_part_free():
    """Half of the calls take 100 tokens more than expected, half 100 less, in 5 s each; 400 of 500 are expected.

    A call is charged two standard deviations more, about 200. So calls under way take 200 less than their charge in the
    mean, which may be used twice: 6.6 calls a second for 5 s. What is left free is 3.5 times the root of the variance.
    """
    spread = Spread()
    for index in range(1_001):
        used = 600 if index % 2 else 400
        spread.add(used, 500, 700, 5)
    (window,) = windows_of([LIMIT])
    assert spread.charge(500) == 700
    calls = 200_000 * SECOND / window.period_us / 500
    free = calls * 5 * -200 + 3.5 * (calls * 5 * (300**2 + 100**2) / 2) ** 0.5
    assert spread.room(window).amount == pytest.approx(200_000 - free, abs=400)


def test_at_most_a_fifth_of_a_limit_is_left_free():
    """A limit stays useful after answers of which one in ten takes minutes and half of the limit."""
    spread = Spread()
    for index in range(100):
        spread.add(100_000 if index % 10 == 0 else 100, 500, 1_000, 300)
    (window,) = windows_of([LIMIT])
    assert spread.room(window).amount == 160_000
