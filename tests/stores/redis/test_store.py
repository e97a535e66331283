"""The Redis store: one exact limit for a fleet, by the server's clock, in keys that end by themselves."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
import redis
from redis.crc import key_slot

from headgate import AsyncLimiter, Call, Decision, Limit, Limiter
from headgate.stores import Store
from headgate.testing import ManualClock, ReferenceStore
from headgate.testing.traces import Trace, compare
from tests.support.processes import CONTEXT
from tests.support.proxy import Proxy
from tests.support.remote import KINDS, RemoteSuite, patient
from tests.support.servers import BINARIES, Server, wait_until

pytestmark = pytest.mark.engineless

WEEKS_MS = 4 * 7 * 86_400_000
SLACK_MS = 3_600_001
"""How much longer a key lives than it has to where a test moves the time; one millisecond otherwise."""


class OnServer(RemoteSuite):
    binary = "valkey"
    server: Server
    seeds = range(1)

    @classmethod
    def setup_class(cls) -> None:
        if cls.binary not in BINARIES:
            pytest.skip(f"{cls.binary} is not installed")
        cls.server = Server(binary=cls.binary).start()

    @classmethod
    def teardown_class(cls) -> None:
        cls.server.stop()

    def empty(self) -> str:
        self.server.client().flushall()
        return self.server.url


class TestValkey(OnServer):
    seeds = range(2)


class TestRedis6(OnServer):
    binary = "redis-6.2"


class TestRedis8(OnServer):
    binary = "redis-8"


class TestAwaited(OnServer):
    waits = True
    steps = 60


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.client().flushall()
    return running


@pytest.fixture(scope="module")
def fleet() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(4, mp_context=CONTEXT) as pool:
        yield pool


def hammer(url: str, text: str, number: int) -> int:
    """Hit one key 1,000 times, as soon as all four are there: two of them in turn, two by fifty coroutines."""
    with redis.Redis.from_url(url) as client:
        client.incr("ready")
        wait_until(lambda: int(client.get("ready") or 0) == 4, "four processes are ready", 60)
    store = patient(url)
    if number % 2:
        limiter = Limiter(text, store=store, on_error="raise")
        return sum(limiter.hit("k").allowed for _ in range(1_000))

    async def hits() -> int:
        limiter = AsyncLimiter(text, store=store, on_error="raise")

        async def some() -> int:
            return sum([(await limiter.hit("k")).allowed for _ in range(20)])

        admitted = sum(await asyncio.gather(*(some() for _ in range(50))))
        await store.aclose()
        return admitted

    return asyncio.run(hits())


@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_admits_exactly_the_limit(server, fleet, kind):
    """Four processes, one key: what all of them together admit is the limit, one for one."""
    jobs = [fleet.submit(hammer, server.url, f"2000/4 weeks by {kind}", number) for number in range(4)]
    assert sum(job.result(60) for job in jobs) == 2_000


def names_and_ttls(server: Server) -> dict[bytes, int]:
    """Every key there is, with its milliseconds to live; what ends while we look is left out."""
    client = server.client()
    found = {name: client.pttl(name) for name in client.scan_iter()}
    return {name: ttl for name, ttl in found.items() if ttl != -2}


ACTS = {
    "allowed": [("hit", 7)],
    "nothing asked": [("hit", 0)],
    "refused": [("hit", 7), ("hit", 7)],
    "never": [("hit", 1), ("hit", 11)],
    "partial": [("take_up_to", 7), ("take_up_to", 7), ("take_up_to", 7)],
    "given back": [("hit", 3), ("hit", 5), ("give", 2)],
    "all given back": [("hit", 5), ("give", 5)],
    "key given back": [("hit", 3), ("refund", 9)],
    "decided": [("decide", 4), ("decide", 7)],
    "reset": [("hit", 3), ("reset", 0), ("hit", 1)],
    "by a larger plan": [("plan", 15), ("hit", 1)],
}


def do(limiter: Limiter, acts: list[tuple[str, int]]) -> None:
    (limit,) = limiter.limits
    last = None
    for verb, amount in acts:
        match verb:
            case "hit" | "take_up_to":
                last = getattr(limiter, verb)("k", amount)
            case "plan":
                limiter.hit("k", amount, limit=Limit(20, "4 weeks", algorithm=limit.algorithm))
            case "decide":
                limiter.decide(Call(limit, "k", amount))
            case "give":
                assert last is not None
                limiter.refund(last, amount)
            case "refund":
                limiter.refund("k", amount)
            case "reset":
                limiter.reset("k")


@pytest.mark.parametrize("acts", ACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_live_as_long_as_they_matter(server, kind, acts):
    """Whatever was done: no key for ever, none shorter than until the burst is back, none longer than it counts.

    A bucket, a fixed window and a log count for at most a period; blended slots for a period and a slot.
    """
    limiter = Limiter(f"10/4 weeks by {kind}", store=patient(server.url), on_error="raise")
    do(limiter, ACTS[acts])
    least = limiter.peek("k", 0).reset_us // 1000 - 60_000  # a minute: how long this test may take
    ttls = names_and_ttls(server)
    most = WEEKS_MS + {"sliding-window": WEEKS_MS, "sliding-window/6": WEEKS_MS // 6}.get(kind, 0)
    assert all(0 <= ttl <= most + 2 for ttl in ttls.values())
    assert max(ttls.values(), default=0) >= least


@pytest.mark.parametrize("kind", KINDS)
def test_every_charge_renews_the_time_to_live(server, kind):
    """As if the first one were long ago."""
    limiter = Limiter(f"1000/4 weeks by {kind}", store=patient(server.url), on_error="raise")
    for cost in (500, 1, 2, 3):  # of a log: room is made, used, and used again
        limiter.hit("k", cost)
        ((name, ttl),) = names_and_ttls(server).items()
        assert ttl > limiter.peek("k", 0).reset_us // 1000 - 60_000 > 60_000
        server.client().pexpire(name, 60_000)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_end_though_the_clock_steps_back(server, kind, clock):
    """A state that follows the clock back lives by the new time."""
    limiter = Limiter(f"10/minute by {kind}", store=patient(server.url, clock), on_error="raise")
    for act in (lambda: limiter.hit("k", 10), lambda: limiter.hit("k"), lambda: limiter.hit("k", 0)):
        clock.advance(-1e6)
        act()
        (ttl,) = names_and_ttls(server).values()
        assert 60_000 < ttl <= 120_001 + SLACK_MS


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_a_key_of_its_own_that_ends(server, kind):
    """The key of a block is made with the first refusal, and expires with the block."""
    limiter = Limiter(f"10/second by {kind} block 1h", store=patient(server.url), on_error="raise")
    limiter.hit("k", 10)
    assert not any(name.endswith(b"b") for name in names_and_ttls(server))
    assert limiter.hit("k").retry_after == 3600
    (ttl,) = (ttl for name, ttl in names_and_ttls(server).items() if name.endswith(b"b"))
    assert 3_540_000 < ttl <= 3_600_001


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_a_key_that_is_as_new(server, kind):
    """The server forgets by itself, and soon."""
    limiter = Limiter(f"30/100ms by {kind} block 150ms", store=patient(server.url), on_error="raise")
    limiter.hit("k", 30)
    limiter.hit("k", 30)
    assert server.client().dbsize() > 0
    wait_until(lambda: server.client().dbsize() == 0, "all keys have ended")
    assert limiter.hit("k", 30)


@pytest.mark.parametrize("kind", KINDS)
def test_time_is_the_servers(server, kind):
    """In real time: a key is refused for at least as long as it was told, and then admitted."""
    limiter = Limiter(f"30/200ms by {kind}", store=patient(server.url), on_error="raise")
    for _ in range(100):  # a window may end between two questions
        limiter.take_up_to("k", 30)
        before = time.monotonic()
        refused = limiter.hit("k", 30)
        if not refused:
            break
    assert 0 < refused.retry_after <= 0.4
    wait_until(lambda: limiter.hit("k", 30), "the retry has come")
    assert time.monotonic() - before >= refused.retry_after


BRACES = ["{a}b", "a{", "}{", "{}", "{", "user{1}:{2}", "alice@example.org", "hg1:{x}"]


def test_names_tell_nothing_and_keep_a_subject_together(server):
    """All limits of a key share a cluster slot, also of one that has braces; of the key nothing is to be seen."""
    text = "10/hour block 1h; 20/hour by fixed-window; 30/hour by sliding-window/6; 40/hour by sliding-log as log"
    limiter = Limiter(text, store=patient(server.url), on_error="raise")
    slots = set()
    for key in BRACES:
        limiter.hit(key, 10)
        limiter.hit(key)
        names = list(names_and_ttls(server))
        assert len(names) == 5
        assert all(re.fullmatch(rb"hg1:\{[A-Za-z0-9+/]{22}\}[A-Za-z0-9+/]{11}b?", name) for name in names)
        (slot,) = {key_slot(name) for name in names}
        slots.add(slot)
        limiter.reset(key)
        assert not names_and_ttls(server)
    assert len(slots) == len(BRACES)


def test_namespaces_and_peppers_make_other_names(server):
    """A process without the pepper finds neither the names nor the budget."""
    seen: set[bytes] = set()
    for namespace, pepper in [("a", b""), ("b", b""), ("a", b"secret"), ("a", b"other")]:
        store = patient(server.url, pepper=pepper)
        limiter = Limiter("10/hour; 10/hour by sliding-log", store=store, namespace=namespace, on_error="raise")
        assert limiter.hit("k", 6)
        names = set(names_and_ttls(server)) - seen
        assert len(names) == 2 and len({name.split(b"}")[0] for name in (*names, *seen)}) == len(seen) / 2 + 1
        seen |= names


@pytest.mark.parametrize("limits", [1, 2, 3])
def test_a_decision_is_one_round_trip(server, limits):
    """However many limits it has; the script's text travels once."""
    texts = ["10/second block 5s", "100/minute by sliding-window/60", "1000/hour by sliding-log"][:limits]
    server.command("SCRIPT", "FLUSH")
    with Proxy(server) as proxy:
        store = patient(proxy.url)
        limiter = Limiter(*texts, store=store, on_error="raise")
        limiter.hit("k")
        server.command("CONFIG", "RESETSTAT")
        before = proxy.round_trips
        for _ in range(20):
            limiter.hit("k")
        assert proxy.round_trips - before == 20
        stats = server.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] == 20 and "cmdstat_eval" not in stats
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_whose_state_has_emptied_and_ended_lasts_no_longer_than_it_says(server, kind, clock):
    """An emptied state ends at once by the server's own clock; virtual time keeps it, so here it is removed by hand."""
    limiter = Limiter(f"10/10s by {kind} block 1s", store=patient(server.url, clock), on_error="raise")
    spent = limiter.hit("k", 10)
    assert limiter.hit("k", 10).retry_after > 1
    limiter.refund(spent)
    for name in list(server.client().scan_iter()):
        if not name.endswith(b"b"):
            server.client().delete(name)
    assert limiter.hit("k").retry_after == 1
    clock.advance(1)
    assert limiter.hit("k").remaining == 9


FINE = ["7/second", "999999999/day burst 5", "8191/day", "3/7s burst 11", "11/second by gcra block 2s"]
DEEP = ["40/minute by sliding-log", "1000/minute by sliding-log", "60/minute by sliding-window/60"]


@pytest.mark.parametrize("text", [*FINE, *DEEP])
def test_long_traces_get_the_references_answers(server, text):
    """More of the suite's traces where there is more to go wrong: odd fractions, rings and many slots."""
    for seed in range(100, 104):
        server.client().flushall()
        compare(text, lambda clock: patient(server.url, clock), seed, 500)


def test_a_fraction_of_a_microsecond_is_not_a_unit(server):
    """A bucket of 8.4 years is just about to get its next unit: doubles alone would count it already."""
    limit, clock = Limit.parse("8191/4 weeks burst 900000"), ManualClock(1e9)
    ours, theirs = (
        Limiter(limit, store=store, on_error="raise")
        for store in (patient(server.url, clock), ReferenceStore(clock=clock))
    )
    for limiter in (ours, theirs):
        limiter.hit("k", 900_000)
    start = clock.us
    for units in range(1, 900_000, 449):
        clock.us = start + units * limit.period_us // limit.amount
        assert ours.peek("k", 0).remaining == theirs.peek("k", 0).remaining


ROLLING = [
    ["100/minute", "70/minute", "7/minute", "13/minute burst 40", "100/minute burst 3", "8191/minute"],
    ["10/minute block 10s", "7/minute block 10s", "70/minute block 10s"],
    [f"{amount}/minute by fixed-window" for amount in (1000, 10, 3)],
    [f"{amount}/minute by sliding-window" for amount in (1_000_000_000, 30, 10)],
    [f"{amount}/minute by sliding-window/7" for amount in (999, 20, 3)],
    [f"{amount}/minute by sliding-log" for amount in (400, 50, 10, 3)],
]


@pytest.mark.parametrize("texts", ROLLING, ids=lambda texts: texts[0])
def test_a_rolling_deploy_of_other_numbers_keeps_the_state(server, texts):
    """Processes with other numbers, on one state: what each is told, and what it gives back later, is the reference's.

    A bucket's fractions change their denominator, a log holds more than the lower limit, and its ring wraps and grows.
    """
    plans = [Limit.parse(text) for text in texts]
    for seed in range(3):
        server.client().flushall()
        chance, clock = random.Random(seed), ManualClock()
        homes: list[Store] = [patient(server.url, clock), ReferenceStore(clock=clock)]
        pairs = [[Limiter(plan, store=home, on_error="raise") for home in homes] for plan in plans]
        charged: list[list[Decision]] = []
        trace = Trace(tuple(plans), seed, 300)
        for step in trace:
            pair = chance.choice(pairs)
            clock.us = step.at_us
            if charged and step.verb.startswith("refund"):
                some = charged.pop(-chance.randint(1, min(5, len(charged))))
                part = chance.choice([None, None, 1])
                for limiter, decision in zip(pair, some, strict=True):
                    limiter.refund(decision, part)
            elif step.verb == "take_up_to":
                charged.append([limiter.take_up_to(step.key, step.cost) for limiter in pair])
            elif step.verb != "reset":
                charged.append([limiter.hit(step.key, step.cost) for limiter in pair])
            for ours, theirs in [*charged[-1:], [limiter.peek(step.key, 0) for limiter in pair]]:
                assert (ours.verdicts, ours.granted) == (theirs.verdicts, theirs.granted), (pair, seed, step)
            trace.decision = charged[-1][0] if charged else None
