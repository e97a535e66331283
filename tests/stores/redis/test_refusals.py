"""Refusals remembered: while nothing can have changed, a refused key is refused again without asking the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate import AsyncLimiter, Call, Decision, Limit, Limiter
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock, ReferenceStore
from headgate.testing.suite import SEVERAL, SINGLE
from headgate.testing.traces import Trace
from tests.support.inside import topology_of
from tests.support.remote import asked
from tests.support.servers import Server

pytestmark = pytest.mark.engineless


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


class Watch:
    """A store by a clock of its own on an emptied server, and how often that server is asked."""

    def __init__(self, server: Server, remember: float | None) -> None:
        server.client().flushall()
        self.server = server
        self.clock = ManualClock(1e9)
        self.store = RedisStore(server.url, clock=self.clock, deadline=5.0, remember_refusals=remember)

    def limiter(self, *limits: str, namespace: str = "default") -> Limiter:
        return Limiter(*limits, store=self.store, namespace=namespace, on_error="raise")

    def commands(self) -> int:
        return asked(self.server)

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """Everything inside is answered here."""
        before = self.commands()
        yield
        assert self.commands() == before

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What is inside is answered by the server."""
        before = self.commands()
        yield
        assert self.commands() > before


@pytest.fixture
def watch(server) -> Watch:
    """With a memory that outlasts every retry in these tests."""
    return Watch(server, 3600)


def test_a_refusal_is_repeated_until_its_retry(watch):
    """The refusal is not repeated a microsecond longer; and the waits that are told grow shorter as time goes by."""
    limiter = watch.limiter("10/10s")
    limiter.hit("k", 10)
    refused = limiter.hit("k")
    assert (refused.retry_us, refused.reset_us) == (1_000_000, 10_000_000)
    for age in (0, 1, 250_000, 999_999):
        watch.clock.us = 1_000_000_000_000_000 + age
        with watch.unasked():
            again = limiter.hit("k")
        assert (again.allowed, again.remaining, again.degraded) == (False, 0, False)
        assert (again.retry_us, again.reset_us) == (1_000_000 - age, 10_000_000 - age)
    watch.clock.us += 1
    with watch.asked():
        assert limiter.hit("k").allowed


@pytest.mark.parametrize(("remember", "cap_us"), [(0.5, 500_000), (None, 1_000_000)], ids=["given", "default"])
def test_never_longer_than_agreed(server, remember, cap_us):
    """Units that another process gives back are noticed after the time agreed, by default a second."""
    watch = Watch(server, remember)
    limiter, start = watch.limiter("10/hour"), watch.clock.us
    limiter.hit("k", 10)
    limiter.hit("k")
    Watch.limiter(Watch(server, 0), "10/hour")  # empties the server, as nobody tells this process
    watch.clock.us = start + cap_us - 1
    with watch.unasked():
        assert not limiter.hit("k")
    watch.clock.us = start + cap_us
    with watch.asked():
        assert limiter.hit("k")


def test_what_is_refused_again_is_remembered_anew(server):
    """The server is asked once each half second, and the wait is exact to the microsecond in between."""
    watch = Watch(server, 0.5)
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 10)
    for _ in range(3):
        with watch.asked():
            assert limiter.hit("k").retry_us == 360_000_000 + 1_000_000_000_000_000 - watch.clock.us
        watch.clock.advance(0.499999)
        with watch.unasked():
            assert limiter.hit("k").retry_us == 360_000_000 + 1_000_000_000_000_000 - watch.clock.us
        watch.clock.advance(0.000001)


def test_larger_costs_are_refused_too_and_smaller_ones_asked(watch):
    """A refusal of a cost is one of every larger cost, for one limit and for several."""
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 8)
    assert not limiter.hit("k", 3)
    with watch.unasked():
        assert not any(limiter.hit("k", cost) for cost in (3, 4, 10))
    with watch.asked():
        assert limiter.hit("k", 0)
    with watch.asked():
        assert limiter.hit("k", 2)
    with watch.unasked():
        assert not limiter.hit("k", 3)
    named = watch.limiter("10/hour as calls; 10/hour as words")
    assert not named.hit("k", {"calls": 1, "words": 11}) and named.hit("k", {"calls": 1, "words": 8})
    assert not named.hit("k", {"calls": 1, "words": 3})
    with watch.unasked():
        assert not named.hit("k", {"calls": 1, "words": 4})
    with watch.asked():
        assert not named.hit("k", {"calls": 0, "words": 4})


def test_a_cost_above_the_burst_is_told_never(watch):
    """It is remembered as such, and no other refusal answers for it."""
    limiter = watch.limiter("10/hour")
    assert limiter.hit("k", 11).never
    watch.clock.advance(1000)
    with watch.unasked():
        again = limiter.hit("k", 11)
        assert (again.allowed, again.never, again.retry_after) == (False, True, float("inf"))
    assert limiter.hit("k", 10)
    assert not limiter.hit("k")
    with watch.asked():
        assert limiter.hit("k", 11).never


def test_a_partial_grant_is_one_unit_at_least(watch):
    """`take_up_to` is answered by a refusal of one unit only, and is told what the server would tell."""
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 8)
    assert not limiter.hit("k", 3)
    with watch.asked():
        assert limiter.take_up_to("k", 7).granted == 2
    told = limiter.take_up_to("k", 7)
    with watch.unasked():
        again = limiter.take_up_to("k", 7)
        assert (again.allowed, again.granted, again.verdicts) == (False, 0, told.verdicts)
        assert not limiter.hit("k")
    assert again.calls == told.calls


def test_peek_always_asks(watch):
    """A peek is not answered from memory, and its refusal is not remembered."""
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 10)
    limiter.hit("k")
    with watch.asked():
        assert not limiter.peek("k")
    assert not limiter.peek("new", 11)
    with watch.asked():
        limiter.hit("new", 11)


@pytest.mark.parametrize("way", ["refund", "refund key", "reset", "clear", "elsewhere"])
def test_what_this_process_gives_back_is_known_at_once(watch, way):
    """A refund, a reset or a clear makes the process ask again."""
    limiter = watch.limiter("10/hour")
    spent = limiter.hit("k", 10)
    limiter.hit("k")
    watch.clock.advance(1)
    acts = {
        "refund": lambda: limiter.refund(spent, 3),
        "refund key": lambda: limiter.refund("k", 3),
        "reset": lambda: limiter.reset("k"),
        "clear": lambda: watch.store.clear("default"),
        "elsewhere": lambda: watch.limiter("10/hour").refund(spent, 3),  # another limiter on the same store
    }
    acts[way]()
    assert limiter.hit("k", 3)
    watch.clock.advance(1)
    limiter.take_up_to("k", 10)
    assert not limiter.hit("k")
    watch.clock.advance(1)
    with watch.unasked():
        assert not limiter.hit("k")


def test_a_refund_is_not_outrun_by_a_refusal_on_its_way(watch):
    """The refusal was right when it was decided, and the refund came before it was heard of."""

    async def both() -> Decision:
        limiter = AsyncLimiter("10/hour", store=watch.store, on_error="raise")
        spent = await limiter.hit("k", 10)
        refused, _ = await asyncio.gather(limiter.hit("k"), limiter.refund(spent))
        assert not refused
        watch.clock.advance(1)
        decision = await limiter.hit("k")
        await watch.store.aclose()
        return decision

    assert asyncio.run(both())


def test_a_refusal_while_a_refund_travels_is_not_remembered_beyond_it(watch, monkeypatch):
    """The refund was announced here before the refusal was asked for, and reached the server after it."""
    limiter = watch.limiter("10/hour")
    spent = limiter.hit("k", 10)
    limiter.hit("k")
    exchange, watch.clock.us = topology_of(watch.store).exchange, watch.clock.us + 1_000_000

    def refused_first(command):
        monkeypatch.undo()
        watch.clock.advance(1)
        assert not limiter.hit("k")
        watch.clock.advance(1)
        return exchange(command)

    monkeypatch.setattr(topology_of(watch.store), "exchange", refused_first)
    limiter.refund(spent)
    watch.clock.advance(1)
    assert limiter.hit("k")


def test_others_are_not_concerned(watch):
    """Another key, namespace, limit or plan of the same key is asked for; another limiter of the same is not."""
    text = "10/hour by fixed-window"
    limiter = watch.limiter(text)
    limiter.hit("k", 10)
    limiter.hit("k")
    with watch.unasked():
        assert not watch.limiter(text).hit("k")
    assert limiter.hit("other")
    assert limiter.hit("k", limit="20/hour by fixed-window")
    assert watch.limiter(text, namespace="elsewhere").hit("k")
    assert watch.limiter("10/hour by sliding-log").hit("k")
    limiter.refund("other", 1)
    with watch.unasked():
        assert not limiter.hit("k")


def test_a_clock_that_steps_back_asks(watch):
    """A refusal from the future is not used."""
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 10)
    limiter.hit("k")
    watch.clock.advance(-1)
    with watch.asked():
        assert not limiter.hit("k")


def test_several_subjects_are_remembered_together(watch):
    """The same calls are refused again; others of the same subjects are asked for; what is given to any counts."""
    limiter = watch.limiter("1/day")
    user, org = Limit.parse("9/hour as user"), Limit.parse("10/hour as org")
    spent = limiter.decide(Call(org, "o", 10))
    calls = Call(user, "u1"), Call(org, "o")
    refused = limiter.decide(*calls)
    watch.clock.advance(1)
    with watch.unasked():
        again = limiter.decide(*calls)
    assert (again.allowed, again.binding, again.calls) == (False, org, calls)
    waits = [verdict.retry_us for verdict in refused.verdicts], [verdict.retry_us for verdict in again.verdicts]
    assert waits == ([0, 360_000_000], [0, 359_000_000])
    with watch.asked():
        assert not limiter.decide(Call(user, "u2"), Call(org, "o"))
    with watch.asked():
        assert limiter.decide(Call(user, "u1"), Call(org, "o", 0))
    limiter.refund(spent, 1)
    assert limiter.decide(*calls)


def test_memory_is_bounded(watch):
    """Of 10,500 refused keys the latest 7,500 are remembered, the first 500 are not."""
    limiter = watch.limiter("10/hour")
    for number in range(10_500):
        assert limiter.hit(f"key {number}", 11).never
    with watch.unasked():
        for number in range(3_000, 10_500):
            limiter.hit(f"key {number}", 11)
    before = watch.commands()
    for number in range(500):
        limiter.hit(f"key {number}", 11)
    assert watch.commands() - before == 500


def test_off_with_nothing_to_remember(server):
    """`remember_refusals=0` asks every time."""
    watch = Watch(server, 0)
    limiter = watch.limiter("10/hour")
    limiter.hit("k", 10)
    limiter.hit("k")
    with watch.asked():
        assert not limiter.hit("k")


REMEMBERED = [text for text in (*SINGLE, *SEVERAL) if "in flight" not in text]  # a no of those may end at any time


@pytest.mark.parametrize("text", REMEMBERED)
def test_one_process_cannot_tell_memory_from_server(watch, text):
    """While time goes on and nobody else is there: what passes is what the reference lets pass, no wait is longer."""
    before, acts = watch.commands(), 0
    for seed in (1, 2):
        trace = Trace(Limit.parse_all(text), seed, 100)
        offset = watch.clock.us - trace.start
        ours = watch.limiter(text, namespace=f"trace {seed}")
        theirs = Limiter(text, store=ReferenceStore(clock=watch.clock), namespace=f"trace {seed}")
        for step in trace:
            watch.clock.us = max(watch.clock.us, step.at_us + offset)
            if step.verb == "reset" or step.verb.startswith("refund"):
                for limiter in (ours, theirs):
                    limiter.reset(step.key) if step.verb == "reset" else limiter.refund(step.key, min(step.cost, 3))
                acts += 1
                continue
            verb = "hit" if step.verb in ("peek", "reserve") else step.verb
            for cost in (step.cost, step.cost + 1, step.cost, step.cost):
                mine, other = (getattr(limiter, verb)(step.key, cost) for limiter in (ours, theirs))
                told = [(each.allowed, each.granted, each.never) for each in (mine, other)]
                assert told[0] == told[1], (seed, step, cost)
                assert mine.retry_us <= other.retry_us
                acts += 1
            trace.decision = mine
    assert watch.commands() - before < acts - 20  # so many answers, at least, came from memory
