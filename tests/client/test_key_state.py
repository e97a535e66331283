"""The state of a key: it is calm while nobody waits and nothing is wrong with its server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.client.key_state import KeyState
from headgate.client.learning import Learned
from headgate.client.server_limits import ServerLimit
from headgate.clock import SECOND
from headgate.limit import Limit

pytestmark = pytest.mark.engineless
NOW = 1_000 * SECOND


def calm() -> KeyState:
    """Return the state of a key whose server has answered."""
    state = KeyState("api.example", Learned((), 0.02, tokens=False))
    state.answered = True
    return state


def spread(state: KeyState) -> None:
    for second in range(5):
        state.learned.hear(
            [ServerLimit(limit=100, window=60, remaining=5, reset=30 - second)], NOW + (second - 4) * SECOND
        )


def promise(state: KeyState) -> None:
    state.promised_us = NOW + SECOND


def fill(state: KeyState) -> None:
    state.full_until_us = NOW + SECOND


def find_a_rate(state: KeyState) -> None:
    state.finder.sent(NOW, 100)
    state.finder.refused(NOW)


@pytest.mark.parametrize(
    ("stir", "seconds"),
    [
        (lambda state: state.pause(NOW, 7), 7),
        (lambda state: state.throttle.count(NOW, accepted=False), 120),
        (promise, 1),
        (fill, 1),
        (lambda state: state.line.enter(0, bool), None),
        (find_a_rate, None),
        (lambda state: state.slowness.refused(NOW), None),
        (spread, None),
    ],
)
def test_a_calm_ends_and_comes_back(stir: Callable[[KeyState], None], seconds: int | None):
    """By a pause, a failure, a promise, no place: after that time; others last until something else ends them."""
    state = calm()
    assert state.is_calm(NOW)
    stir(state)
    back = NOW + (seconds or 10**6) * SECOND
    assert (state.is_calm(NOW), state.is_calm(back - 1), state.is_calm(back)) == (False, False, seconds is not None)


def test_a_key_is_not_calm_before_its_first_answer():
    """One request is under way until then."""
    state = calm()
    state.answered = False
    assert not state.is_calm(NOW)


def test_a_pause_makes_requests_look_again():
    """The functions that take a place at once are forgotten, in threads and in event loops."""
    state = calm()
    for side in ("hit_in_threads", "hit_in_loops"):
        setattr(state, side, bool)
    state.pause(NOW, 1)
    assert (state.hit_in_threads, state.hit_in_loops) == (None, None)


def test_a_pause_of_another_process_slows_the_pace_once():
    """Callers that find the same pause again while it lasts hear of no other refusal; the next pause is one."""
    state = KeyState("api.example", Learned((Limit(200, "second"),), 0.02, tokens=False))
    shares = []
    for second, left in ((0, 7), (2, 5), (6, 1), (7, 3)):
        state.find_paused(NOW + second * SECOND, left)
        shares.append(state.slowness.share)
    assert shares == [0.98, 0.98, 0.98, 0.98**2]
