"""The limits that a key learns from its server."""

from __future__ import annotations

import pytest

from headgate.client.learning import Learned
from headgate.client.server_limits import ServerLimit
from headgate.clock import SECOND
from headgate.limit import as_limits

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(("reset", "window"), [(1.0, 1), (2.0, 1), (9.0, 10), (11.0, 10), (59.0, 60), (3600.0, 3600)])
def test_a_window_that_is_not_told_is_guessed_by_its_reset(reset: float, window: int):
    """Servers tell resets in whole seconds, rounded up: a window of one second may be told to end in two."""
    learned = Learned((), 0.02, tokens=False)
    learned.hear([ServerLimit(limit=200, remaining=199, reset=reset)], SECOND)
    assert [(limit.amount, limit.period_us // SECOND) for limit in learned.limits] == [(200, window)]


def known(learned: Learned) -> list[str]:
    return sorted(map(str, learned.limits))


@pytest.mark.parametrize(
    ("published", "told", "limits"),
    [
        ("100/minute", ServerLimit(limit=50, window=60), ["50/minute as requests"]),
        ("100/minute", ServerLimit(limit=500, window=60), ["100/minute as requests"]),
        ("100/minute", ServerLimit(limit=50), ["50/minute as requests"]),
        ("100/minute", ServerLimit("daily", 1000, 86_400), ["100/minute as requests", "1000/day as daily"]),
        ((), ServerLimit(limit=500, window=60), ["500/minute as requests"]),
        ("100/minute", ServerLimit(limit=50, window=0.0000001), ["100/minute as requests"]),
        ("100/minute", ServerLimit("tokens", 5, 60), ["100/minute as requests"]),
    ],
)
def test_a_tighter_limit_is_adopted_and_a_looser_one_only_where_there_was_none(published, told, limits):
    """The word of the user stands unless the server's is tighter; a limit on another window is one more limit."""
    learned = Learned(as_limits(published), 0.02, tokens=False)
    learned.hear([told], SECOND)
    assert known(learned) == limits


def test_a_limit_that_becomes_looser_again_is_followed_up_to_the_published_one():
    """A server that halves its limit for a while and raises it again: the pace follows both times."""
    learned = Learned(as_limits("100/minute"), 0.02, tokens=False)
    for amount, expected in ((50, 50), (80, 80), (300, 100)):
        learned.hear([ServerLimit(limit=amount, window=60)], SECOND)
        assert [limit.amount for limit in learned.limits] == [expected]


def test_another_resource_of_the_same_host_says_nothing():
    """GitHub's search allows 30 a minute: a key that began with the core API keeps to the core's limit."""
    learned = Learned((), 0.02, tokens=False)
    learned.hear([ServerLimit("core", 5000, 3600)], SECOND)
    learned.hear([ServerLimit("search", 30, 60, 0, 50)], 2 * SECOND)
    assert known(learned) == ["5000/hour as core"]


def test_a_server_that_invents_names_teaches_eight_limits():
    """The limits of one key are bounded."""
    learned = Learned((), 0.02, tokens=False)
    learned.hear([ServerLimit(f"policy{number}", 100 + number, 60) for number in range(30)], SECOND)
    assert len(learned.limits) == 8


@pytest.mark.parametrize(
    ("amount", "window"),
    [(10**9, 60), (4 * 10**9, 3600), (10**9, 1), (204_000_000, 60), (10**13, 366 * 86_400), (10**15 - 1, 1)],
)
def test_a_limit_that_no_caller_reaches_is_not_adopted_and_fails_no_call(amount: int, window: float):
    """More than a unit in a microsecond, or an amount whose pace cannot be kept exactly: such a limit limits nobody."""
    learned = Learned((), 0.02, tokens=True)
    for name in ("requests", "tokens"):
        learned.hear([ServerLimit(name, amount, window, remaining=amount - 1)], SECOND)
    assert known(learned) == []
