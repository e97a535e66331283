"""The window of a server that tells none, guessed by its resets."""

from __future__ import annotations

import pytest

from headgate.client.guessed_window import GuessedWindow
from headgate.clock import MINUTE, SECOND

pytestmark = pytest.mark.engineless


def guesses(resets: list[float], step: float) -> list[float]:
    """Return the guesses in seconds after resets that were told one step after another."""
    window = GuessedWindow()
    heard = [window.hear(round(reset * SECOND), round(number * step * SECOND)) for number, reset in enumerate(resets)]
    return [(each or 0) / SECOND for each in heard]


def test_a_longer_reset_is_believed_at_once():
    """Three seconds are left to rounding; without any reset nothing is known."""
    assert guesses([0, 1, 4, 4.5, 13, 13.5, 0, 7], 0.1) == [0, 1, 1, 10, 10, 60, 60, 60]


def test_a_reset_that_was_late_once_is_forgotten():
    """A server of one second told 5 s once: ten seconds are believed for 20 s, and then the second again."""
    found = guesses([1, 5] + [2] * 300, 0.1)
    assert found[:2] == [1, 10]
    assert found.index(1, 2) == 202
    assert set(found[202:]) == {1}


@pytest.mark.parametrize("seconds", [10, 60, 600])
def test_a_window_that_is_as_long_as_the_guess_confirms_it(seconds: int):
    """The resets of a fixed window count down and begin again: the guess stays, also near the end of a window."""
    resets = [seconds - second % seconds for second in range(5 * seconds)]
    assert set(guesses([float(reset) for reset in resets], 1)) == {seconds}


def test_a_server_that_is_not_asked_confirms_nothing():
    """After an hour of silence a window of a minute is still one, although a few answers come at its end."""
    window = GuessedWindow()
    window.hear(MINUTE, 0)
    assert {window.hear(5 * SECOND, 60 * MINUTE + number) for number in range(20)} == {MINUTE}
    assert window.hear(5 * SECOND, 60 * MINUTE + 20) == 10 * SECOND
