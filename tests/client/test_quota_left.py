"""What remains of a limit: by how much its pace is slower while other programs spend too."""

from __future__ import annotations

import pytest

from headgate.client.quota_left import QuotaLeft
from headgate.client.server_limits import ServerLimit
from headgate.clock import SECOND
from headgate.limit import Limit

pytestmark = pytest.mark.engineless

LIMIT = Limit(600, "minute")
PACE = Limit(600, 61.2, burst=6, name="requests")


def hear(
    left: QuotaLeft, at: float, remaining: int, reset: float | None, window: float | None = 60
) -> tuple[float, int]:
    """Return the seconds for which nothing is left, and the amount of the pace."""
    now_us = round(at * SECOND)
    told = ServerLimit(limit=600, window=window, remaining=remaining, reset=reset)
    return left.hear(told, LIMIT, now_us), left.pace(PACE, now_us).amount


def test_a_pace_of_98_percent_leaves_two():
    """While 12 of 600 remain, nobody else spends; of less, the missing part is taken from the pace, down to a fifth."""
    left = QuotaLeft(0.02)
    paces = [hear(left, at, remaining, None)[1] for at, remaining in enumerate((300, 12, 9, 6, 3, 0, 12))]
    assert paces == [600, 600, 450, 300, 150, 120, 600]


def test_a_slower_pace_ends_with_the_window():
    """A caller that hears nothing more goes on at its pace when the told reset has come."""
    left = QuotaLeft(0.02)
    hear(left, 0, 300, None)
    hear(left, 1, 0, 20)
    assert [left.pace(PACE, at * SECOND).amount for at in (1, 20, 21)] == [120, 120, 600]
    assert [left.slow_until_us(at * SECOND) for at in (1, 20, 21)] == [21 * SECOND, 21 * SECOND, 0]


def test_a_server_without_a_burst_tells_nothing_by_what_remains():
    """Where never more than a tenth remained, 0 remains after each request that passes."""
    left = QuotaLeft(0.02)
    assert [hear(left, at, 0, None)[1] for at in range(5)] == [600] * 5


def test_a_small_limit_has_no_two_percent():
    """Of 100 a minute, two percent are two requests: jitter alone takes them."""
    left = QuotaLeft(0.02)
    for at, remaining in enumerate((99, 50, 0)):
        left.hear(ServerLimit(limit=100, remaining=remaining), Limit(100, "minute"), at * SECOND)
        assert left.pace(Limit(100, "minute"), at * SECOND) == Limit(100, "minute")


def test_a_window_of_a_second_is_over_before_its_answer_is_there():
    """Shorter windows than five seconds are left to refusals."""
    left, second = QuotaLeft(0.02), Limit(100, "second")
    for at, remaining in enumerate((99, 0)):
        left.hear(ServerLimit(limit=100, remaining=remaining), second, at * SECOND)
        assert left.pace(second, at * SECOND) == second


def test_the_rest_of_a_fixed_window_is_spread():
    """A window that ends at the same instant for three seconds is a fixed one: 50 units last for 50 s."""
    left = QuotaLeft(0.02)
    rows = ((0, 500, 60), (3, 100, 57), (10, 50, 50))
    assert [hear(left, *row) for row in rows] == [(0, 600), (0, 100), (0, 61)]
    assert hear(left, 20, 0, 40) == (40, 61), "nothing is left: the key pauses until the end"


def test_a_spread_charges_nothing_beyond_the_end_of_its_window():
    """One unit remains for 50 s. Charged 10 s before the end, at one a minute, it would hold the next window up."""
    left = QuotaLeft(0.02)
    for row in ((0, 500, 60), (10, 1, 50)):
        hear(left, *row)
    assert [left.pace(PACE, at * SECOND).amount for at in (10, 20, 40, 50, 59, 60)] == [2, 2, 4, 7, 62, 600]


def test_answers_that_overtake_each_other_are_of_one_window():
    """A little more remains than the answer before has told: the least counts, and the window goes on."""
    left = QuotaLeft(0.02)
    rows = ((0, 500, 60), (1, 110, 59), (2, 120, 58), (3, 100, 57), (4, 103, 56))
    assert [hear(left, *row)[1] for row in rows] == [600, 600, 600, 100, 100]


def test_a_window_that_slides_over_two_is_not_a_fixed_one():
    """Two counters tell the end of the next window, always the same instant, and give units back before it."""
    left = QuotaLeft(0.02)
    rows = [(at, 500 - 10 * at, 110 - at) for at in range(40)]
    assert {hear(left, *row) for row in rows} == {(0, 600)}


def test_a_first_answer_with_nothing_left_pauses_until_its_reset():
    """The window was used up before this process came."""
    assert hear(QuotaLeft(0.02), 0, 0, 30) == (30, 600)
