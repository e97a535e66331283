"""`act: {delay: {at_most: 200ms}}`: a request that would be held for longer is refused at once, and charged nothing."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pytest

from headgate.policy import Policy
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.settling import refund
from headgate.steps import run
from headgate.testing import ManualClock
from headgate.waiting.timers import Timers
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.wsgi import RateLimitMiddleware as WSGIMiddleware
from tests.support.edges import LATER, Responder, get, plain, responder, still, view, wsgi
from tests.support.homes import EVERY_HOME, home_of, in_each_home
from tests.support.inside import bounds_kept, runtime_of
from tests.support.stores import away

SHORT: dict[str, Any] = {"limits": "20/second", "act": {"delay": {"at_most": "200ms"}}}


@pytest.fixture(params=EVERY_HOME)
def home(request):
    with home_of(request.param) as made:
        yield made


def judged_at(home: Any, *rules: dict[str, Any]) -> Responder:
    """A compiled on a store of this home."""
    judged = Responder({"rules": [{"key": "ip", **rule} for rule in rules]})
    judged.stores[""] = home.store(judged.clock)
    judged.compiled = CompiledPolicy(judged.compiled.policy, judged.stores, awaited=False)
    return judged


def test_who_would_wait_longer_is_refused_with_the_exact_time_and_charged_nothing(home):
    """One every 50 ms: five are held for up to 200 ms, and at 50 ms there is a place for one more."""
    judged = judged_at(home, SHORT)
    outcomes = [judged.ask() for _ in range(8)]
    assert [outcome.delay_us for outcome in outcomes[:5]] == [0, 50_000, 100_000, 150_000, 200_000]
    for refused in outcomes[5:]:
        assert (refused.kind, refused.status, refused.charges) == ("deny", 429, ())
        assert refused.decision is not None and refused.decision.retry_after == 0.05
    assert judged.left() == 15
    judged.clock.advance(0.049999)
    assert judged.wait() == 0.000001
    judged.clock.advance(0.000001)
    last, refused = judged.ask(), judged.ask()
    assert (last.kind, last.delay_us, refused.kind) == ("pass", 200_000, "deny")
    assert judged.left() == 15


def test_what_a_request_costs_makes_others_wait_and_not_itself(home):
    """Ten units at once pass at once; the next is 500 ms behind them, whatever it costs."""
    judged = judged_at(home, {**SHORT, "cost": {"POST": 10, "PUT": 9, "PATCH": 21}})
    assert judged.ask("POST").delay_us == 0
    assert [judged.wait(method) for method in ("GET", "PUT")] == [0.3, 0.3]
    judged.clock.advance(0.3)
    assert judged.ask("PUT").delay_us == 200_000
    assert judged.left() == 7
    never = judged.ask("PATCH")
    assert never.decision is not None and never.decision.never


def test_hours_of_queue_are_not_taken_for_a_clock_that_stepped_back(home):
    """A dear request fills it; what is refused behind it leaves it as it is."""
    hours = {"limits": "1/second queue 10000", "act": {"delay": {"at_most": 1}}, "cost": {"POST": 9000}}
    judged = judged_at(home, hours)
    assert judged.ask("POST").kind == "pass"
    assert [judged.wait(), judged.wait("POST")] == [8999.0, 8999.0]
    judged.clock.advance(8999)
    assert judged.ask().delay_us == 1_000_000


def test_of_many_at_once_as_many_pass_as_can_be_held(home):
    """The store decides, in one step: threads cannot pass it together."""
    judged = judged_at(home, SHORT)
    with ThreadPoolExecutor(8) as threads:
        kinds = list(threads.map(lambda _: judged.ask().kind, range(80)))
    assert (kinds.count("pass"), kinds.count("deny"), judged.left()) == (5, 75, 15)


def test_the_queue_may_still_be_full_first():
    """Three are held at most, of which the third waits for 100 ms."""
    judged = responder({**SHORT, "act": {"delay": {"hold": 3, "at_most": "200ms"}}})
    assert [judged.ask().delay_us for _ in range(3)] == [0, 50_000, 100_000]
    assert judged.wait() == 0.05


def test_a_request_that_costs_nothing_passes_and_waits_no_longer():
    """No limit refuses what costs nothing."""
    judged = responder({**SHORT, "cost": {"POST": 10, "GET": 0}})
    judged.ask("POST")
    assert [(outcome.kind, outcome.delay_us) for outcome in (judged.ask(), judged.ask())] == [("pass", 200_000)] * 2


def test_rules_of_one_decision_have_each_its_own_time_and_all_or_none_is_charged(home):
    """Whichever would hold for too long refuses for all, and says when it would not."""
    patient = {"name": "patient", "limits": "10/second queue 100", "act": {"delay": {"at_most": 1}}}
    prompt = {"name": "prompt", "limits": "40/second", "act": {"delay": {"at_most": "100ms"}}}
    endless = {"name": "endless", "limits": "50/second", "act": "delay"}
    daily = {"name": "daily", "limits": "100/day"}
    judged = judged_at(home, patient, prompt, endless, {**daily, "match": {"method": "GET"}})
    passed = [judged.ask() for _ in range(5)]
    assert [outcome.delay_us for outcome in passed] == [0, 100_000, 200_000, 300_000, 400_000]
    refused = judged.ask()
    assert refused.kind == "deny" and refused.rule is not None and refused.decision is not None
    assert (refused.rule.name, refused.decision.retry_us) == ("prompt", 25_000)
    assert [judged.left(rule) for rule in range(4)] == [95, 35, 45, 95]
    delays = []
    for _ in range(8):
        judged.clock.advance(0.025)
        delays.append(judged.ask("POST").delay_us)
    assert delays == [475_000, 550_000, 625_000, 700_000, 775_000, 850_000, 925_000, 1_000_000]
    judged.clock.advance(0.025)
    late = judged.ask()
    assert late.kind == "deny" and late.rule is not None and late.decision is not None
    assert (late.rule.name, late.decision.retry_us) == ("patient", 75_000)
    assert [judged.left(rule) for rule in (1, 3)] == [36, 95]


def test_a_held_request_that_goes_away_gives_back_all_it_was_charged():
    """A request behind a dearer one, which is held for the longest time, gives all back too."""
    judged = responder({**SHORT, "cost": {"POST": 10}})
    held = [judged.ask() for _ in range(2)]
    assert judged.ask("POST").delay_us == 100_000
    assert judged.left() == 8
    run(refund(held[1].charges))
    assert judged.left() == 9


def test_where_the_store_cannot_answer_the_same_holds_here():
    """`on_error: local` counts in this process, by the same times."""

    store: Any = away()
    local = still()
    store.local = local
    compiled = CompiledPolicy(Policy({"rules": [{"key": "ip", **SHORT}]}), {"": store}, awaited=False)
    outcomes = [run(compiled.before(view())) for _ in range(6)]
    assert [outcome.delay_us for outcome in outcomes[:5]] == [0, 50_000, 100_000, 150_000, 200_000]
    refused = outcomes[5]
    assert refused.kind == "deny" and refused.decision is not None and refused.decision.retry_us == 50_000


def test_limits_that_a_function_chooses_are_bounded_too():
    """They are read for each request."""
    judged = responder({**SHORT, "limits": lambda seen: "10/second", "cost": lambda seen: 1})
    assert [judged.ask().delay_us for _ in range(3)] == [0, 100_000, 200_000]
    assert judged.wait() == 0.1


def test_a_million_costs_take_no_more_room_than_a_thousand():
    """The numbers that are remembered for each cost are bounded."""
    act = {"delay": {"at_most": 10}}
    judged = responder({"limits": "1000000/second queue 9000000", "act": act, "cost": lambda seen: int(seen.user)})
    for cost in range(1, 3000):
        assert judged.ask(user=str(cost)).kind == "pass"
    assert 0 < bounds_kept(judged.compiled) <= 1024


RATES = ((20, 1000), (7, 1000), (3, 1), (1000, 7), (999, 1000))
"""Units, and milliseconds."""


@pytest.mark.parametrize("seed", range(12))
def test_random_traces_agree_with_a_queue_in_fractions(seed):
    """One to three rules: which requests are held or refused, and for how long; at the edges of every time told."""
    chance = random.Random(seed)
    rates = [chance.choice(RATES) for _ in range(chance.randint(1, 3))]
    waits = [chance.choice((1000, 3000, 50_000, 1_000_000)) for _ in rates]
    holds = [chance.choice((3, 5, 40)) for _ in rates]
    rules = [
        {
            "name": f"rule{at}",
            "limits": f"{amount}/{period} ms",
            "act": {"delay": {"hold": hold, "at_most": wait / 1e6}},
            "cost": {"GET": 1, "POST": 2, "PUT": 3},
        }
        for at, ((amount, period), wait, hold) in enumerate(zip(rates, waits, holds, strict=True))
    ]
    judged = responder(*rules)
    units = [Fraction(period * 1000, amount) for amount, period in rates]
    ends = [Fraction(0)] * len(rates)
    for _ in range(300):
        method = chance.choice(("GET", "POST", "PUT"))
        cost, now = {"GET": 1, "POST": 2, "PUT": 3}[method], judged.clock.us
        begins = [max(end, Fraction(now)) for end in ends]
        early = [
            max(begin - now - wait, begin + cost * unit - now - hold * unit)
            for begin, wait, unit, hold in zip(begins, waits, units, holds, strict=True)
        ]
        outcome = judged.ask(method)
        if max(early) <= 0:
            assert (outcome.kind, outcome.delay_us) == ("pass", -(-max(begin - now for begin in begins) // 1))
            assert outcome.delay_us <= max(waits)
            ends = [begin + cost * unit for begin, unit in zip(begins, units, strict=True)]
            judged.clock.advance(chance.choice((0, 0, 0.000001, 0.001)))
        else:
            assert outcome.kind == "deny" and outcome.decision is not None
            assert outcome.decision.retry_us == -(-max(early) // 1)
            judged.clock.us += max(0, outcome.decision.retry_us + chance.choice((-1, 0, 0, 1)))


def held_by(clock: ManualClock, app: Any) -> Any:
    """The edge holds requests by this clock."""
    runtime_of(app).clock, runtime_of(app).timers = clock, Timers(clock)
    return app


RULES = {"rules": [{"key": "ip", "cost": {"POST": 10}, **SHORT}]}


def test_wsgi_refuses_at_once_or_holds_the_thread_for_no_longer(home):
    """500 ms behind a dear request: 429 at once; 300 ms later, held for 200 ms."""
    clock = ManualClock(LATER)

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return []

    limited = held_by(clock, WSGIMiddleware(app, RULES, store=home.store(clock)))
    assert wsgi(limited, "POST").status == 200
    answers = [wsgi(limited) for _ in range(3)]
    assert [(answer.status, answer.fields["retry-after"]) for answer in answers] == [(429, "1")] * 3
    assert clock.us == LATER * 1e6
    clock.advance(0.299999)
    assert (wsgi(limited).status, clock.us) == (429, LATER * 1e6 + 299_999)
    clock.advance(0.000001)
    assert (wsgi(limited).status, clock.us) == (200, LATER * 1e6 + 500_000)


@in_each_home
async def test_asgi_refuses_at_once_or_holds_the_request_for_no_longer(store, clock):
    """The same, awaited."""
    limited = held_by(clock, RateLimitMiddleware(plain, RULES, store=store))
    assert (await get(limited, "POST")).status == 200
    answers = [await get(limited) for _ in range(3)]
    assert [(answer.status, answer.fields["retry-after"]) for answer in answers] == [(429, "1")] * 3
    clock.advance(0.3)
    held = asyncio.ensure_future(get(limited))
    await asyncio.sleep(0.05)
    assert not held.done()
    clock.advance(0.199999)
    await asyncio.sleep(0.01)
    assert not held.done()
    clock.advance(0.000001)
    assert (await held).status == 200
