"""The decision: which algorithm serves which needs, and why."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from headgate import InvalidCall, InvalidLimit, Limit, Limiter, MemoryStore, Shaper
from headgate.clock import DAY, HOUR, MINUTE, SECOND, HandClock
from headgate.lab import Needs, recommend
from headgate.lab.advise.sizes import COMPARED, size_of
from headgate.lab.traffic import TRAFFIC, Scene
from headgate.policy import Policy

pytestmark = pytest.mark.engineless

MILLION = 1_000_000
CASES = {
    "REST": (Needs(100), "token-bucket", "token-bucket", "100/minute"),
    "public API": (
        Needs(1000, HOUR, exactness="close", clients=100_000),
        "sliding-window", "sliding-window", "1000/hour by sliding-window",
    ),
    "login": (Needs(5, exactness="exact"), "sliding-log", "sliding-log", "5/minute by sliding-log"),
    "payments": (Needs(10, exactness="exact", store="redis"), "sliding-log", "sliding-log", "10/minute by sliding-log"),
    "fragile database": (
        Needs(50, SECOND, smooth=True, clients=1), "leaky-bucket", "leaky-bucket", "50/second queue 50",
    ),
    "internal": (Needs(1000, SECOND, clients=50), "fixed-window", "token-bucket", "1000/second"),
    "SDK": (Needs(60, bursts=True, clients=1), "token-bucket", "token-bucket", "60/minute"),
    "GraphQL": (Needs(10_000), "token-bucket", "token-bucket", "10000/minute"),
    "partner contract": (
        Needs(10_000, HOUR, exactness="exact", clients=50), "sliding-log", "sliding-log", "10000/hour by sliding-log",
    ),
    "two million riders": (
        Needs(100, HOUR, exactness="close", clients=2 * MILLION, memory=320 * MILLION),
        "sliding-window", "sliding-window", "100/hour by sliding-window",
    ),
    "daily quota": (Needs(1000, DAY), "fixed-window", "fixed-window", "1000/day by fixed-window"),
    "ingestion": (Needs(3000, SECOND, smooth=True), "leaky-bucket", "leaky-bucket", "3000/second queue 3000"),
}  # fmt: skip
"""Twelve cases: the needs, the algorithm of the literature, ours, and the limit."""
WHY_NOT = {
    "internal": "its states are small: 16 bytes a key, 1.2 kB in all. A fixed window saves nothing worth its seam, "
    "with 24 bytes a key",
}
"""The reasons where the literature says otherwise. It takes fixed windows for internal services as the cheapest."""


@pytest.mark.parametrize("case", CASES)
def test_the_cases_of_the_literature(case):
    """Eleven of twelve cases get the algorithm that articles recommend; the twelfth says why not."""
    needs, literature, algorithm, limit = CASES[case]
    advice = recommend(needs)
    assert (advice.algorithm, advice.limit) == (algorithm, limit)
    assert (literature != algorithm) == (case in WHY_NOT)
    assert WHY_NOT.get(case, advice.reasons[-1]) in advice.reasons


@pytest.mark.parametrize("case", CASES)
def test_the_advice_can_be_used(case):
    """The limit opens a limiter, or a shaper where requests wait, and the policy is one that can be read."""
    advice = recommend(CASES[case][0])
    if advice.waits:
        assert Shaper(advice.limit, clock=HandClock()).enter("k")
    else:
        assert Limiter(advice.limit, clock=HandClock()).hit("k")
    yaml = pytest.importorskip("yaml")
    (rule,) = Policy(yaml.safe_load(advice.policy)).rules
    assert rule.plans is not None
    ((limit,),) = rule.plans.values()
    assert (limit.amount, limit.period_us) == (advice.needs.amount, advice.needs.period_us)
    assert (rule.act.kind == "delay") == advice.waits


def test_two_million_riders_fit_where_a_log_does_not():
    """Two counters for two million clients take 85 MB, a log 2.2 GB: the table has both."""
    advice = recommend(CASES["two million riders"][0])
    totals = {size.algorithm: (size.key_bytes, size.total) for size in advice.sizes}
    assert totals["sliding-window"] == (32, 85_333_504)
    assert totals["sliding-log"] == (840, 2_240_004_480)
    assert (
        "two counters take 32 bytes a key, 85.3 MB in all; a log takes 840 bytes a key, 2.2 GB in all" in advice.reasons
    )


EXACT = Needs(1000, exactness="exact", clients=100_000)


@pytest.mark.parametrize(
    ("memory", "limit"),
    [
        (1_200 * MILLION, "1000/minute by sliding-log"),
        (100 * MILLION, "1000/minute by sliding-window/60"),
        (10 * MILLION, "900/minute burst 100"),
    ],
)
def test_exactness_within_memory(memory, limit):
    """A log if it fits, else slots, else a bucket whose rate and burst add up to the amount: never more passes."""
    assert recommend(replace(EXACT, memory=memory)).limit == limit


@pytest.mark.parametrize("amount", [1, 2, 9, 10, 1000])
def test_a_split_bucket_never_passes_more_than_the_amount(amount):
    """A greedy client of the bucket that stands in for a log never has more than the amount in any minute."""
    clock = HandClock()
    advice = recommend(Needs(amount, exactness="exact", memory=1))
    limiter = Limiter(advice.limit, clock=clock)
    assert advice.algorithm == "token-bucket"
    passed = []
    for clock.us in range(0, 5 * MINUTE, MINUTE // (2 * amount)):
        while limiter.hit("k"):
            passed.append(clock.us)
    assert max(sum(start <= time < start + MINUTE for time in passed) for start in passed) <= amount


def test_no_bursts():
    """A tenth of the amount at once; where never more than the amount may pass, the rate is lowered by it."""
    assert recommend(Needs(bursts=False)).limit == "100/minute burst 10"
    assert recommend(Needs(bursts=False, exactness="exact")).limit == "90/minute burst 10"
    assert recommend(Needs(3, bursts=False)).limit == "3/minute burst 1"


@pytest.mark.parametrize(
    ("needs", "algorithm", "sees"),
    [
        (Needs(), "token-bucket", "199"),
        (Needs(bursts=False), "token-bucket", "109"),
        (Needs(bursts=False, exactness="exact"), "token-bucket", "99"),
        (Needs(smooth=True), "leaky-bucket", "100"),
        (Needs(exactness="exact"), "sliding-log", "100"),
        (Needs(exactness="close"), "sliding-window", "about 100, 200 at worst"),
    ],
)
def test_the_table_tells_what_the_recommended_limit_may_pass(needs, algorithm, sees):
    """The row of the recommended algorithm is about the recommended limit, with its own burst."""
    assert {size.algorithm: size.sees for size in recommend(needs).sizes}[algorithm] == sees


def test_two_counters_are_too_coarse_below_ten():
    """Close to 9 a minute is kept by a log, which is as small there; close to 10 by two counters."""
    nine, ten = recommend(Needs(9, exactness="close")), recommend(Needs(10, exactness="close"))
    assert (nine.algorithm, ten.algorithm) == ("sliding-log", "sliding-window")
    assert "the estimate of two counters is too coarse below an amount of about 10" in nine.reasons


def warned(needs, words):
    """Whether a warning has these words."""
    return any(words in each for each in recommend(needs).warnings)


def test_a_bucket_warns_of_its_worst_period():
    """Burst and refill add up: 199 for 100/minute, 109 with a burst of 10; a bucket made to fit does not warn."""
    assert recommend(Needs()).warnings == (
        "the worst minute sees the burst and the refill: 199. Where that is too much, lower the burst",
    )
    assert warned(Needs(bursts=False), "the refill: 109.")
    assert not warned(Needs(bursts=False, exactness="exact"), "the refill")


def test_windows_and_logs_warn_of_polling():
    """A client at exactly its limit is refused now and then, as often as made traffic says; a bucket does not."""
    words = "about 360 by a fixed window, 500 by two counters and 1,200 by a log, none by a bucket"
    assert warned(Needs(100, DAY), words)
    assert warned(Needs(exactness="close"), words)
    assert warned(Needs(exactness="exact"), words)
    assert not warned(Needs(), "polls")
    assert not warned(Needs(smooth=True), "polls")
    counted = {"fixed-window": 360, "sliding-window": 499, "sliding-log": 1_197, "token-bucket": 0}
    for algorithm, count in counted.items():
        clock, refused = HandClock(), 0
        limiter = Limiter(f"10/minute by {algorithm}", clock=clock)
        for clock.us, key, _ in TRAFFIC["steady"].requests(Scene(seed=1, for_us=DAY)):
            refused += not limiter.hit(key)
        assert refused == count


def test_a_fixed_window_warns_of_its_seam():
    """Twice the amount around the end of a window."""
    assert warned(Needs(100, DAY), "200 can pass around the end of a window")


def test_what_does_not_fit_is_said():
    """No algorithm is smaller than the chosen one, and it does not fit: the advice says so."""
    assert warned(
        Needs(clients=MILLION, memory=MILLION), "the states do not fit: 16 bytes a key, 21.3 MB in all, of 1.0 MB"
    )
    assert not warned(Needs(clients=MILLION), "do not fit")


@pytest.mark.parametrize("algorithm", COMPARED)
def test_bytes_in_memory_are_those_of_the_store(algorithm):
    """The bytes of all clients are those that a store refuses to do without, and with one client more it refuses."""
    needs = Needs(100, clients=6_000)
    size = size_of(algorithm, needs)
    limit = Limit(100, per="minute", algorithm=algorithm)
    assert size.total >= size.key_bytes * 8_000
    store = MemoryStore(max_keys=6_000, max_bytes=size.total)
    assert Limiter(limit, store=store).hit("k")
    with pytest.raises(InvalidLimit):
        Limiter(limit, store=MemoryStore(max_keys=6_001, max_bytes=size.key_bytes * 8_000))


@pytest.mark.parametrize(
    ("algorithm", "amount"),
    [
        *((algorithm, 100) for algorithm in COMPARED),
        ("sliding-log", 10),
        ("sliding-log", 1000),
        ("token-bucket", 10**6),
    ],
)
def test_bytes_on_a_server_are_about_those_of_the_server(algorithm, amount, server):
    """A full state of a real server takes what the table says, give or take a tenth."""
    limiter = Limiter(f"{amount}/hour by {algorithm}", store=f"{server.url}?deadline=5")
    assert limiter.hit("k", cost=amount)
    (name,) = server.client().keys("*")
    measured = server.command("MEMORY", "USAGE", name)
    told = size_of(algorithm, Needs(amount, HOUR, store="redis")).key_bytes
    assert 0.9 * measured <= told <= 1.1 * measured
    limiter.store.close()


def test_a_limit_that_no_log_can_keep():
    """Two million stamps are too many for a log: the table says so, and slots are recommended."""
    advice = recommend(Needs(2 * MILLION, exactness="exact"))
    assert advice.limit == "2000000/minute by sliding-window/60"
    assert "a log does not fit: more than a store can keep for one key, of 268.4 MB" in advice.reasons
    assert any(
        line.split() == ["sliding-log", "does", "not", "fit", "-", "2,000,000"] for line in str(advice).splitlines()
    )


def test_the_text():
    """The limit first, then why, what to beware of, the bytes of every algorithm, and a policy."""
    lines = str(recommend(Needs(5, exactness="exact"))).splitlines()
    assert lines[0] == "sliding-log: 5/minute by sliding-log"
    assert [line for line in lines if line and not line.startswith(" ")] == [
        lines[0],
        "Why",
        "Beware",
        "States of 10,000 clients in the memory of one process, its tables filled to three quarters",
        "Policy",
        "version: 1",
        "rules:",
    ]
    assert "  sliding-log                 64  853.5 kB                     5" in lines
    assert max(map(len, lines)) <= 100


def test_advice_is_a_value():
    """Needs and advice are frozen, and the same needs are the same advice."""
    advice = recommend(Needs())
    assert advice == recommend(Needs())
    with pytest.raises(FrozenInstanceError):
        advice.limit = "1/day"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ({"clients": 0}, "clients is a whole number from 1; got 0"),
        ({"memory": 1.5}, "memory is a whole number from 1; got 1.5"),
        ({"exactness": "exakt"}, "unknown exactness 'exakt': did you mean 'exact'?"),
        ({"store": "disk"}, "unknown store 'disk': did you mean 'redis'?"),
        ({"amount": 0}, "amount is a whole number from 1; got 0"),
    ],
)
def test_wrong_needs_are_refused(needs, problem):
    """A wrong need says what to write instead."""
    with pytest.raises((InvalidCall, InvalidLimit)) as caught:
        Needs(**needs)
    assert str(caught.value) == problem


def test_the_budget_is_that_of_a_memory_store():
    """The default memory is what a store takes by default."""
    assert Needs().memory == MemoryStore().max_bytes
