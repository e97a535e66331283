"""Numbers of the report: rounded, but never to something that is not true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate import Limit
from headgate.clock import SECOND
from headgate.lab.comparison import Measured, names
from headgate.lab.numbers import duration, multiple, percent, period, several
from tests.lab.report.samples import LIMITS, QUEUE

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (1, 3, "33.3 %"),
        (99_999, 100_000, "> 99.9 %"),
        (9_999, 10_000, "> 99.9 %"),
        (999, 1_000, "99.9 %"),
        (6, 100, "6.00 %"),
        (1, 1_000, "0.10 %"),
        (33, 1_000_000, "0.0033 %"),
        (1, 10_000_000, "< 0.0001 %"),
    ],
)
def test_a_share_is_never_rounded_to_none_or_all(part, whole, text):
    """Only a count of 0 is 0 %, and only all of them are 100 %."""
    assert percent(part, whole) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.0, "1.0x"), (1.98, "2.0x"), (1.05, "1.1x"), (1.02, "1.02x"),
     (1.001, "> 1.00x"), (0.999, "< 1.00x"), (0.5, "0.5x")],
)  # fmt: skip
def test_a_multiple_above_one_is_not_written_as_one(number, text):
    """A limit that was passed by a hair was passed."""
    assert multiple(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 s"), (60, "60 s"), (3_600, "1 hour"), (7_200, "2 hours"), (86_400, "1 day"), (90, "90 seconds")],
)
def test_a_period_follows_the_word_in(seconds, text):
    """A period of several units keeps its number."""
    assert period(seconds * SECOND) == text


def test_the_length_of_a_bin_is_told_whole():
    """Bins double, so that their length is seldom a round number."""
    assert [duration(length * SECOND) for length in (1, 60, 8_192, 90_000)] == [
        "1 s",
        "1 min",
        "2 h 16 min 32 s",
        "1 d 1 h",
    ]


def test_one_is_singular():
    """A number agrees with its noun."""
    assert [several(number, "client") for number in (0, 1, 1_000)] == ["0 clients", "1 client", "1,000 clients"]


def test_limits_are_named_by_what_differs():
    """Algorithms alone where all else is the same; else the whole limit, and a queue as users write it."""
    assert names.names(LIMITS) == ["sliding-log", "fixed-window", "token-bucket"]
    assert names.title(LIMITS) == "60/minute by 3 algorithms"
    other = Measured(Limit(5, 1, burst=7), 0, 0, 0, None, None, None, 16, 1)
    assert names.names([*LIMITS[:1], other, QUEUE]) == [
        "60/minute by sliding-log",
        "5/second burst 7",
        "10/second queue 50",
    ]
    assert names.title([*LIMITS[:1], other]) == "2 limits compared"
    same = replace(QUEUE, limit=LIMITS[2].limit)
    assert names.names([LIMITS[2], same]) == ["60/minute", "60/minute queue 60"]
    assert names.title([QUEUE]) == "10/second queue 50"
