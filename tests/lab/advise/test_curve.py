"""Rate against burst, for a log: what covers the clients, which pair is best, and who is refused by it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate import InvalidCall, Limit
from headgate.clock import HOUR, MINUTE, SECOND
from headgate.lab import burst_curve
from headgate.lab.advise.bursts import Client
from headgate.lab.logs import Log
from headgate.policy import Policy
from tests.support.traces import trace

pytestmark = pytest.mark.engineless


def crowd(*bursts, at=0, status=200):
    """A client for each number, which sends as many requests at one instant."""
    return [(at, f"c{number}", 1, "GET", "/", status) for number, burst in enumerate(bursts) for _ in range(burst)]


def steady(key, every, count):
    """A client that sends one request at each interval."""
    return [(every * turn, key, 1, "GET", "/", 200) for turn in range(count)]


def test_the_burst_covers_the_share():
    """Of 200 clients that need 1 to 200, one may be refused at 0.5 %: 199 cover the rest; 2 at 1 %, none at 0.1 %."""
    curve = burst_curve(crowd(*range(1, 201)), [10])
    (rung,) = curve.rungs
    assert curve.shares == (Fraction(1, 100), Fraction(1, 200), Fraction(1, 1000))
    assert rung.bursts == (198, 199, 200)
    assert (rung.limit, rung.most) == (Limit(10, per="minute", burst=199), 208)
    assert [client.key for client in curve.refused] == ["c199"]
    assert (curve.requests, curve.clients) == (20_100, 200)


@pytest.mark.parametrize(("share", "burst", "refused"), [(Fraction(0), 200, 0), (Fraction(1, 10), 180, 20)])
def test_any_share_may_be_refused(share, burst, refused):
    """Nobody, or a tenth of the clients; the share has a column of its own."""
    curve = burst_curve(crowd(*range(1, 201)), [10], refuse_at_most=share)
    assert curve.best.limit.burst == burst
    assert len(curve.refused) == refused
    assert share in curve.shares
    assert curve.shares == tuple(sorted(curve.shares, reverse=True))


def test_the_best_pair_passes_the_least():
    """A client sends 30 a minute for an hour: 10/minute needs a burst, 30 does not, 50 passes more than is needed."""
    curve = burst_curve(steady("ann", 2 * SECOND, 1800), [10, 30, 50])
    assert [(rung.limit.amount, rung.limit.burst) for rung in curve.rungs] == [(10, 1201), (30, 1), (50, 1)]
    assert curve.best is curve.rungs[1]
    assert str(curve.best.limit) == "30/minute burst 1"
    assert curve.refused == ()
    assert "No client would have been refused." in str(curve)


def test_of_equal_pairs_the_lower_rate_is_best():
    """1 with a burst of 4 and 2 with a burst of 3 both pass 5 in a minute; the lower rate passes less in an hour."""
    requests = crowd(3) + [(30 * SECOND, "c0", 1, "GET", "/", 200)]
    curve = burst_curve(requests, [2, 1])
    assert [(rung.limit.amount, rung.limit.burst, rung.most) for rung in curve.rungs] == [(1, 4, 4), (2, 3, 4)]
    assert curve.best is curve.rungs[0]


def test_a_burst_is_at_least_one():
    """Clients whose requests cost nothing need no burst, and a limit has one all the same."""
    assert str(burst_curve([(0, "ann", 0, "GET", "/", 200)], [10]).best.limit) == "10/minute burst 1"


def test_rates_whose_burst_no_bucket_can_hold_are_left_out():
    """A call of 5 million tokens takes ten years to come back at 1/minute: the other rates are advised all the same."""
    requests = [(0, "ann", 5_000_000, "GET", "/", 200), (0, "bob", 7_000_000, "GET", "/", 200)]
    curve = burst_curve(requests, [1, 1_000_000], refuse_at_most=Fraction(1, 2))
    assert curve.left_out == (1,)
    assert [str(rung.limit) for rung in curve.rungs] == ["1000000/minute burst 5000000"]
    assert curve.refused == (Client("bob", 1, 0, 1, (7_000_000,)),)
    lines = str(curve).splitlines()
    assert "Left out, because no bucket can hold the burst that they need: 1/minute." in lines
    assert not any("of the ladder" in line for line in lines)
    with pytest.raises(InvalidCall, match="no bucket can hold the bursts that these rates need: try higher rates"):
        burst_curve(requests, [1])


def test_another_period_is_protected():
    """`protect_us` is the period of the rates, and of the window in which requests are counted."""
    curve = burst_curve(steady("ann", 2 * MINUTE, 60), [30], protect_us=HOUR, refuse_at_most=Fraction(99, 100))
    assert str(curve.best.limit) == "30/hour burst 1"
    curve = burst_curve(crowd(5) + crowd(5, at=30 * MINUTE), [1], protect_us=HOUR)
    assert str(curve.best.limit) == "1/hour burst 10"


def test_who_is_refused_is_shown():
    """Each refused client with its requests, busiest minute, burst and errors; the one that needs most is the first."""
    curve = burst_curve(crowd(*[1] * 198, 40, 60, status=404), [20], refuse_at_most=Fraction(1, 100))
    assert curve.refused == (Client("c199", 60, 60, 60, (60,)), Client("c198", 40, 40, 40, (40,)))
    lines = str(curve).splitlines()
    at = lines.index("refused  requests  most in a minute  burst needed  errors")
    assert lines[at + 1 : at + 4] == [
        "c199           60                60            60    100%",
        "c198           40                40            40    100%",
        "Some of them may be honest: only you can tell.",
    ]


def test_the_text_says_what_is_left_out():
    """Ten clients are shown, the rest is counted; the end of the ladder is named."""
    text = str(burst_curve(crowd(*[1] * 100, *range(10, 22)), [10, 20], refuse_at_most=Fraction(12, 100)))
    assert "and 2 more" in text.splitlines()
    assert "That is the lowest rate of the ladder: try lower ones with --rates." in text.splitlines()


def test_keys_cannot_steer_a_terminal():
    """The name of a client is escaped and cut."""
    text = str(
        burst_curve(
            [(0, "\x1b[2J" + "a" * 99, 9, "GET", "/", 200), (0, "b", 1, "", "", 0)], [1], refuse_at_most=Fraction(1, 2)
        )
    )
    assert "\x1b" not in text
    assert r"\x1b[2Jaaaaaaaaaa" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_policy_is_a_policy():
    """The text ends with a policy that can be read, with the best limit."""
    curve = burst_curve(crowd(3, 4), [10])
    yaml = pytest.importorskip("yaml")
    (rule,) = Policy(yaml.safe_load(curve.policy)).rules
    assert rule.plans is not None
    assert [list(map(str, limits)) for limits in rule.plans.values()] == [["10/minute burst 4 as api"]]
    assert str(curve).endswith(curve.policy.rstrip())


@pytest.mark.parametrize(
    ("name", "requests", "clients", "limit", "refused"),
    [
        pytest.param("apache-wordpress-2016.log.gz", 206_860, 8_799, "20/minute burst 54", 42, marks=pytest.mark.soak),
        ("nginx-erddap-api-2024.log.gz", 10_479, 917, "5/minute burst 27", 4),
    ],
)
def test_real_logs(name, requests, clients, limit, refused):
    """Two public logs, each with the pair that refuses at most 0.5 % of its clients."""
    curve = burst_curve(Log([trace(name)]))
    assert (curve.requests, curve.clients, str(curve.best.limit)) == (requests, clients, limit)
    assert len(curve.refused) == refused


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"amounts": []}, "a ladder has at least one rate"),
        ({"refuse_at_most": Fraction(1)}, "refuse_at_most is a share from 0 to below 1; got Fraction(1, 1)"),
        ({"requests": []}, "the log has no requests: there is nothing to learn from it"),
    ],
)
def test_what_cannot_be_measured(arguments, problem):
    """A log without requests, a ladder without rates and a share of everybody are refused in words."""
    with pytest.raises(InvalidCall) as caught:
        burst_curve(**{"requests": crowd(1), **arguments})
    assert str(caught.value) == problem
