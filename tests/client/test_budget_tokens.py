"""A budget of tokens in virtual time: what it uses of its limits, and whether its books are those of the provider."""

from __future__ import annotations

import random

import pytest

from headgate.client import Chat
from tests.support.virtual_model import ExactLog, Exchange, Limits, Replayed, WholeBucket, replay

pytestmark = pytest.mark.engineless


def conversations() -> list[Exchange]:
    """Prompts and answers of very different lengths."""
    chance = random.Random(7)
    return [
        Exchange(1 + min(8_000, int(chance.lognormvariate(5, 1.4))), min(2_000, int(chance.lognormvariate(5, 1))))
        for _ in range(3_000)
    ]


def replayed(limits: Limits, minutes: int = 3) -> Replayed:
    return replay(conversations(), limits, Chat(), minutes)


def test_a_bucket_of_tokens_is_used_up_and_refuses_nothing():
    """128 workers want more than is allowed: nearly all of it is used, from the first minute on."""
    done = replayed(Limits(WholeBucket))
    assert (done.refused, done.report.refused_there, done.report.retried) == (0, 0, 0)
    assert round(done.share, 2) == 0.94


@pytest.mark.parametrize("kind", [WholeBucket, ExactLog])
def test_the_report_has_the_tokens_that_the_provider_has_counted(kind):
    """To the token, whichever way the provider counts."""
    done = replayed(Limits(kind))
    assert done.report.units["tokens"] == done.counted
    assert done.report.refused_there == done.refused


def test_a_limit_on_requests_beside_the_tokens_is_kept():
    """With few requests a minute their limit is the one that binds. Of 900 in three minutes, 2 % are left free, and
    the wait for the first answer takes another 1.5 %."""
    done = replayed(Limits(ExactLog, tokens=10_000_000, requests=300))
    assert (done.admitted, done.refused) == (864, 0)


def test_an_exact_log_of_tokens_refuses_nothing():
    """Lengths of answers are not known beforehand: the budget leaves free what the calls under way may take beyond
    their reservations, 7 % of this limit."""
    done = replayed(Limits(ExactLog), minutes=6)
    assert (done.refused, done.report.refused_there) == (0, 0)
    assert round(done.share, 2) == 0.93


def test_four_processes_share_one_window_of_tokens():
    """Each learns the lengths of answers from a quarter of them. Until the first minute is over they know little, and
    of 1,905 calls an exact log refuses eight; the traces of real models have none (`python -m bench --only client`)."""
    done = replay(conversations(), Limits(ExactLog), Chat(), 6, processes=4)
    assert (done.admitted, done.refused) == (1_897, 8)
    assert round(done.share, 2) == 0.94
    assert sum(report.units["tokens"] for report in done.reports) == done.counted


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_callers_that_are_cancelled_leave_nothing_in_the_window(processes):
    """Half of the callers give up, in the line or in the middle of an answer: the others use the limit as before, and
    nothing is refused. The answer of a call that was cut short tells no tokens, so the reports have fewer."""
    done = replay(
        conversations(),
        Limits(ExactLog),
        Chat(),
        3,
        processes=processes,
        patience=lambda chance: chance.expovariate(0.05),
    )
    assert done.refused == 0
    assert done.share > 0.9
    assert sum(report.units["tokens"] for report in done.reports) < done.counted
