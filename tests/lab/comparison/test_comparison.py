"""Comparisons: every figure equals a slow reference, on both engines, for random traffic and for a real log."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import InvalidCall, Limit
from headgate.clock import MINUTE, SECOND
from headgate.lab import replay
from headgate.lab.comparison import EVERY, RefusedClient, Wrong
from tests.lab.comparison.reference import figures


def requests_at(*seconds, key="ann", status=200):
    return [(round(each * SECOND), key, 1, "GET", "/", status) for each in seconds]


def every_figure(measured):
    return (
        measured.refused, measured.clients, measured.most, measured.same_past, measured.own_past, measured.offered
    )  # fmt: skip


gaps = st.one_of(st.integers(0, 3_000_000), st.sampled_from([0, 1, SECOND, 10 * SECOND, 20 * SECOND, 41 * SECOND]))
traces = st.lists(st.tuples(gaps, st.sampled_from("ab"), st.integers(1, 4)), max_size=60)
LIMITS = [
    *(f"5/10s by {name}" for name in ("sliding-log", "sliding-window/4", "fixed-window", "token-bucket")),
    "12/10s by sliding-window",
    "5/10s burst 9",
    "5/10s burst 2 block 15s",
    "4/10s by sliding-log block 25s",
    "30/2minutes by fixed-window",
]


@given(traces, st.lists(st.sampled_from(LIMITS), min_size=1, max_size=4, unique=True))
@example([(9 * SECOND, "a", 1)] * 5 + [(1, "a", 1)], ["5/10s by fixed-window"])
@example([(0, "a", 5), (10 * SECOND, "a", 1), (20 * SECOND, "a", 5)], ["5/10s by sliding-log"])
@settings(max_examples=150, deadline=None)
def test_every_figure_equals_the_reference(steps, limits):
    """Clients that never come near a limit are not asked in the engine; no figure shows it."""
    now, requests = 1_700_000_000 * SECOND, []
    for gap, key, cost in steps:
        now += gap
        requests.append((now, key, cost, "", "", 0))
    compared = replay(requests, *(Limit.parse(each) for each in limits))
    assert [every_figure(each) for each in compared.limits] == [
        figures(each.limit, requests) for each in compared.limits
    ]
    assert compared.requests == len(requests)
    assert compared.clients == len({key for _, key, _ in steps})
    assert sum(compared.series.offered) == len(requests)
    assert [sum(each) for each in compared.series.refused] == [each.refused for each in compared.limits]


@pytest.mark.parametrize("seed", range(8))
def test_a_slow_client_that_is_never_idle_and_then_hurries(seed):
    """For hours no limit can refuse it, and none is asked; its first refusals are those of limits that always were."""
    chance = Random(seed)
    gaps = [chance.choice((1, 3, 8) if place % 40 > 28 else (20, 25, 30, 60)) for place in range(400)]
    requests = requests_at(*accumulate(gaps))
    compared = replay(requests, "8/minute")
    assert [every_figure(each) for each in compared.limits] == [
        figures(each.limit, requests) for each in compared.limits
    ]
    assert compared.limits[0].refused > 0


def test_one_limit_is_run_by_every_algorithm():
    """A limit that leaves its algorithm open is compared under each one, the exact one first."""
    compared = replay(requests_at(1), "60/minute")
    assert [each.limit.algorithm for each in compared.limits] == list(EVERY)
    assert {(each.limit.amount, each.limit.period_us) for each in compared.limits} == {(60, MINUTE)}


@pytest.mark.parametrize("given", ["5/minute by gcra", Limit(5, "minute")])
def test_a_limit_that_names_its_algorithm_is_run_as_it_is(given):
    """`by`, or a `Limit` object, leaves nothing open."""
    assert len(replay(requests_at(1), given).limits) == 1


def test_a_burst_belongs_to_the_bucket_alone():
    """Windows and logs let their whole amount pass at once, so that only the bucket has the burst of the text."""
    bursts = {each.limit.algorithm: each.limit.burst for each in replay([], "60/minute burst 10").limits}
    assert bursts == {**dict.fromkeys(EVERY, 60), "token-bucket": 10}


def test_an_algorithm_that_cannot_hold_the_limit_is_left_out_and_told():
    """A log of two million stamps does not fit; the other algorithms are compared, and a remark gives the reason."""
    compared = replay([], "2_000_000/day")
    assert "sliding-log" not in [each.limit.algorithm for each in compared.limits]
    assert compared.remarks[0].startswith("sliding-log is left out: ")


def test_the_seam_doubles_a_fixed_window_and_nothing_else():
    """Ten requests before the end of a window and ten after it: twice the limit within 2 s.

    Two counters take 59/60 of the ten before the seam as still there, rounded down, and let one more pass.
    """
    seam = requests_at(*[59] * 10, *[61] * 10)
    most = {each.limit.algorithm: each.most for each in replay(seam, "10/minute").limits}
    assert most == {**dict.fromkeys(EVERY, 10), "sliding-window": 11, "fixed-window": 20}


def test_wrong_has_three_meanings():
    """The same answers of a fixed window are right or wrong by the past that they are compared with.

    Limit 1 in 10 s, requests at 9, 11, 12 and 20 s; the windows end at 10 and 20 s, and pass the requests at 9, 11, 20.
    Same past: at 11 and at 20 the request before is 2 and 9 s old, so that both pass wrongly.
    Own past: an exact log passes 9 and, 11 s later, 20; so that 11 passes wrongly, and 20 does not.
    Offered: a count of all requests says no only to 12, where the exact one says no to 11, 12 and 20.
    """
    (measured,) = replay(requests_at(9, 11, 12, 20), "1/10s by fixed-window").limits
    assert measured.same_past == Wrong(passed=2, refused=0)
    assert measured.own_past == Wrong(passed=1, refused=0)
    assert measured.offered == Wrong(passed=2, refused=0)


def test_offered_is_not_told_where_it_cannot_be_counted():
    """A weekly window counts to 14,892; of a client with more requests, no number is better than a wrong one."""
    flood = [(0, "ann", 10_000, "", "", 0)] * 2
    (measured,) = replay(flood, "10/week by fixed-window").limits
    assert measured.refused == 2
    assert measured.offered is None


def test_refused_clients_are_listed_with_their_first_and_last_refusal():
    """The clients that the first limit refused, the most refused first; errors are statuses from 400."""
    requests = sorted(
        [*requests_at(1, 2, 3, 4, status=404), *requests_at(1, 2, 9, key="bob"), *requests_at(5, key="eve")]
    )
    assert replay(requests, "1/minute by sliding-log").refused_most == (
        RefusedClient("ann", 4, 3, 2 * SECOND, 4 * SECOND, errors=4),
        RefusedClient("bob", 3, 2, 2 * SECOND, 9 * SECOND, errors=0),
    )


def test_a_queue_tells_dropped_requests_and_waits():
    """A queue of 3 at one a second: of 5 requests at once 2 are dropped, the others leave after 0, 1 and 2 s."""
    (measured,) = replay(requests_at(*[10] * 5), "1/second queue 3").limits
    assert (measured.refused, measured.clients, measured.most) == (2, 1, 1)
    assert measured.waits is not None
    assert (measured.waits.median, measured.waits.p99, measured.waits.most) == (1.0, 2.0, 2.0)
    assert measured.same_past is measured.own_past is None


def test_the_pipeline_of_the_ledgers():
    """3,000 a second with room for 5,000: second by second as in the textbook, 1,700 refused in all."""
    arrivals = [(second, count) for second, count in enumerate((4000, 2500, 3200, 6000))]
    requests = [(second * SECOND, "all", 1, "", "", 0) for second, count in arrivals for _ in range(count)]
    (measured,) = replay(requests, "3000/second queue 5000").limits
    assert measured.refused == 1700
    assert measured.most == 3000


def test_a_request_without_cost_is_counted_and_never_refused():
    """Logs of tokens have requests of 0 tokens."""
    compared = replay([(SECOND, "ann", 0, "", "", 0)] * 20, "5/minute")
    assert {each.refused for each in compared.limits} == {0}
    assert compared.requests == 20


def test_time_may_not_run_backwards():
    """A window cannot be asked about the past; the error says what to do."""
    with pytest.raises(InvalidCall, match="order of their times"):
        replay([*requests_at(2), *requests_at(1)], "5/minute")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((), "give a limit"),
        (("5/minute; 10/hour",), "2 limits"),
        (("5 in flight",), "how long each request was in flight"),
    ],
)
def test_what_cannot_be_replayed_is_refused(limits, words):
    """Each error tells the problem and what to do."""
    with pytest.raises(InvalidCall, match=words):
        replay([], *limits)


def test_refusals_are_counted_in_their_second():
    """The series of each limit has the refusals at the time of their requests, and the units above its amount."""
    compared = replay(requests_at(0, 0.5, 1, 2, 2.5, 4), "1/3s by sliding-log", Limit(1, "3s", burst=2))
    assert compared.series.offered == (2, 1, 2, 0, 1)
    assert compared.series.refused == ((1, 1, 2, 0, 0), (0, 1, 2, 0, 0))
    assert compared.series.above == ((0, 0, 0, 0, 0), (1, 0, 0, 0, 0))


def test_long_logs_have_few_bins():
    """Bins become longer with the log, and lose no request; what is above the limit stays visible."""
    month = [(day * 24 * 3600 * SECOND + at, "ann", 1, "", "", 0) for day in range(30) for at in range(8)]
    compared = replay(month, Limit(5, "10s", burst=7))
    series = compared.series
    assert 30 <= len(series.offered) <= 480
    assert sum(series.offered) == 240
    assert sum(series.refused[0]) == 30
    assert max(series.above[0]) == 2
    assert series.start + series.width * len(series.offered) > month[-1][0]


def test_the_table_is_the_text_of_the_result():
    """The columns of the terminal, for a trace that a person can check."""
    seam = requests_at(*[59] * 10, *[61] * 10)
    lines = str(replay(seam, "10/minute")).splitlines()
    table = [line.split()[:6] for line in lines if line.startswith(("fixed", "sliding-log", "token"))]
    assert table == [
        ["sliding-log", "10", "1", "10", "0", "0"],
        ["fixed-window", "0", "0", "2.0x", "20", "10"],
        ["token-bucket", "10", "1", "10", "0", "0"],
    ]


def test_a_hostile_key_cannot_control_a_terminal():
    """Escapes and marks of direction in a key are shown as text, and a long key is cut."""
    text = str(replay(requests_at(1, 1, key="\x1b[2J\u202e" + "x" * 200), "1/minute"))
    assert text.splitlines()[-1].startswith("\\x1b[2J\\u202e" + "x" * 32 + "...  1970-01-01 00:00:01")
    assert "\x1b" not in text and "\u202e" not in text
