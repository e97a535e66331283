"""The Redis store on a cluster: subjects in many slots, slots that move, and not one unit too many."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import redis.asyncio

from headgate import AsyncLimiter, Call, Limit, Limiter, StoreError
from headgate.stores.redis import RedisStore
from headgate.stores.redis.connect import slot_of
from headgate.stores.redis.names import Names
from headgate.testing import ManualClock, ReferenceStore
from tests.support import ROOT
from tests.support.clusters import Cluster
from tests.support.faults import DEADLINE, SLACK, at_most
from tests.support.remote import KINDS, RemoteSuite, asked, awaited, patient
from tests.support.servers import Server, free_port
from tests.support.unreachable import PATIENTLY, SOON, WAYS, black_hole, opened, silent

pytestmark = pytest.mark.engineless

T = TypeVar("T")


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(replicas=False, node_timeout=15_000) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    flush(running)
    return running


def flush(cluster: Cluster) -> None:
    for primary in cluster.primaries:
        primary.client().flushall()


async def closing(store: RedisStore, answer: Awaitable[T]) -> T:
    try:
        return await answer
    finally:
        await store.aclose()


def slot(key: str) -> int:
    return slot_of(Names("default", b"").subject(key))


def keys_at(cluster: Cluster, primary: Server) -> Iterator[str]:
    return (key for key in map("key {}".format, itertools.count()) if cluster.primary_of(slot(key)) is primary)


class OnCluster(RemoteSuite):
    seeds = range(1)

    @pytest.fixture(autouse=True)
    def _cluster(self, running: Cluster) -> None:
        self.cluster = running

    def empty(self) -> str:
        flush(self.cluster)
        return self.cluster.url


class TestCluster(OnCluster):
    pass


class TestAwaitedCluster(OnCluster):
    waits = True
    steps = 60


def test_a_hit_is_one_command_on_one_node(cluster):
    """A hit of several limits is one command too; keys are spread over all nodes, and `clear` finds them there."""
    limiter = Limiter("10/hour block 1h; 20/hour by sliding-log", store=patient(cluster.url), on_error="raise")
    for node in cluster.primaries:
        limiter.hit(next(keys_at(cluster, node)))
    before = [asked(node) for node in cluster.primaries]
    limiter.hit(next(keys_at(cluster, cluster.primaries[1])))
    assert [asked(node) - was for node, was in zip(cluster.primaries, before, strict=True)] == [0, 1, 0]
    for number in range(30):
        limiter.hit(f"user {number}")
    assert all(node.client().dbsize() > 2 for node in cluster.primaries)
    limiter.store.clear("default")
    assert [node.client().dbsize() for node in cluster.primaries] == [0, 0, 0]


def test_any_living_node_will_do_to_find_the_others(cluster):
    """A ready client of either kind finds them too."""
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{cluster.primaries[2].port}"
    port = cluster.primaries[0].port
    with redis.RedisCluster("127.0.0.1", port) as client:
        waiting = redis.asyncio.RedisCluster("127.0.0.1", port)
        for used, target in enumerate([f"redis+cluster://{hosts}", client, waiting], 1):
            limiter = Limiter("10/hour", store=patient(target), on_error="raise")
            for node in cluster.primaries:
                assert limiter.hit(next(keys_at(cluster, node))).remaining == 10 - used


def test_a_cluster_that_is_away_is_answered_by_policy():
    """Hits follow `on_error`, in threads and in a loop; `clear` is an error."""
    store = patient(f"redis+cluster://127.0.0.1:{free_port()}")
    for policy, allowed in {"allow": True, "deny": False, "local": True}.items():
        decision = Limiter("10/hour", store=store, on_error=policy).hit("k")
        assert (decision.allowed, decision.degraded) == (allowed, True)
    with pytest.raises(StoreError):
        Limiter("10/hour", store=store, on_error="raise").hit("k")
    with pytest.raises(StoreError):
        store.clear("default")
    waiting = AsyncLimiter("10/hour", store=store, on_error="deny")
    assert asyncio.run(closing(store, waiting.hit("k"))).degraded


SUBJECTS = [
    ["5/minute as user", "8/minute by sliding-log as org"],
    ["5/minute by fixed-window as user", "8/minute by sliding-window/6 as org", "7/second as all"],
    ["10/minute by sliding-window as user", "20/minute by fixed-window as org", "9/second by gcra as all"],
    ["3/minute block 10s as user", "8/minute as org"],
]


@pytest.mark.parametrize("texts", SUBJECTS, ids=lambda texts: texts[0])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_decisions_over_slots_are_the_references(cluster, texts, kind):
    """Charged all or none; after a refusal every limit says what it holds, as if it had never been charged."""
    limits = [Limit.parse(text) for text in texts]
    clock, chance = ManualClock(1e9), random.Random(1)
    store = patient(cluster.url, clock)
    with awaited(store) as waiting:
        home = waiting if kind == "asyncio" else store
        pair = [Limiter("1/day", store=each, on_error="raise") for each in (home, ReferenceStore(clock=clock))]
        for _ in range(400):
            clock.us += chance.choice([0, 0, 1, 100_000, 1_000_000, 7_000_000])
            keys = [f"{limit.name} {chance.randrange(3)}" for limit in limits]
            calls = [
                Call(limit, key, chance.choice([0, 1, 1, 1, 2, 5])) for limit, key in zip(limits, keys, strict=True)
            ]
            chance.shuffle(calls)
            ours, theirs = (limiter.decide(*calls) for limiter in pair)
            assert (ours.verdicts, ours.binding, ours.calls) == (theirs.verdicts, theirs.binding, theirs.calls)
            if chance.random() < 0.1:
                pair[0].refund(ours)
                pair[1].refund(theirs)


def test_every_limit_that_refuses_starts_its_block(cluster, clock):
    """The limit that was asked first is not the only one whose block starts."""
    user, org = Limit.parse("5/minute block 10m as user"), Limit.parse("3/minute block 10m as org")
    for store in (ReferenceStore(clock=clock), patient(cluster.url, clock)):
        clock.set(1e9)
        limiter = Limiter("1/day", store=store, on_error="raise")
        limiter.decide(Call(user, "u"), Call(org, "o"))
        assert not limiter.decide(Call(user, "u", 5), Call(org, "o", 3))
        clock.advance(120)
        assert not limiter.decide(Call(user, "u"))
        assert not limiter.decide(Call(org, "o")), store


@pytest.mark.parametrize("kind", KINDS)
def test_crowded_decisions_over_slots_never_admit_too_many(cluster, kind):
    """Threads and coroutines want a user and an org each; in the end the books say what was admitted, unit for unit."""
    user, org = Limit.parse(f"60/4 weeks by {kind} as user"), Limit.parse(f"100/4 weeks by {kind} as org")
    store = patient(cluster.url)
    limiter = Limiter("1/day", store=store, on_error="raise")
    admitted: list[tuple[str, str]] = []

    def calls(chance: random.Random) -> tuple[Call, Call]:
        return Call(user, f"u{chance.randrange(5)}"), Call(org, f"o{chance.randrange(2)}")

    def hammer(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            asked = calls(chance)
            if limiter.decide(*chance.sample(asked, 2)):
                admitted.append((asked[0].key, asked[1].key))

    async def hammer_together() -> None:
        waiting, chance = AsyncLimiter("1/day", store=store, on_error="raise"), random.Random(9)

        async def some() -> None:
            for _ in range(15):
                asked = calls(chance)
                if await waiting.decide(*asked):
                    admitted.append((asked[0].key, asked[1].key))

        await asyncio.gather(*(asyncio.to_thread(hammer, seed) for seed in range(3)), *(some() for _ in range(20)))

    asyncio.run(closing(store, hammer_together()))
    for limit, place, keys in ((user, 0, "u0 u1 u2 u3 u4"), (org, 1, "o0 o1")):
        for key in keys.split():
            spent = sum(each[place] == key for each in admitted)
            left = limiter.decide(Call(limit, key, 0)).remaining
            # What a bucket is given back is less the microseconds that passed: the last unit may not be whole again.
            assert 0 <= limit.amount - spent - left <= (kind == "token-bucket"), (key, spent)
    assert len(admitted) > 100


def test_what_overlapping_decisions_give_back_lends_nothing(cluster, clock):
    """Two decisions hold a user's units while their orgs think; what they give back later is less what has drained.

    Given back in full, the second one would give what the first one's return had already freed.
    """
    first, second, third = cluster.primaries
    ann, slow, slower = (next(keys_at(cluster, node)) for node in (first, second, third))
    user, org = Limit.parse("2/2s as user"), Limit.parse("1/4 weeks as org")
    store = patient(cluster.url, clock)

    async def overlap() -> list[bool]:
        limiter = AsyncLimiter("1/day", store=store, on_error="raise")
        for key in (slow, slower):
            assert await limiter.decide(Call(org, key))
        tasks = {}
        for node, key in ((second, slow), (third, slower)):
            node.pause()
            tasks[key] = asyncio.create_task(limiter.decide(Call(user, ann), Call(org, key)))
        while (await limiter.decide(Call(user, ann, 0))).remaining > 0:
            await asyncio.sleep(0.001)
        clock.advance(0.5)
        second.resume()
        assert not await tasks[slow]
        clock.advance(1)
        passed = [await limiter.decide(Call(user, ann))]
        third.resume()
        assert not await tasks[slower]
        clock.advance(0.5)
        passed += [await limiter.decide(Call(user, ann)) for _ in range(2)]
        return [decision.allowed for decision in passed]

    try:
        assert asyncio.run(closing(store, overlap())) == [True, True, False]  # 2 in any half second, not 3
    finally:
        second.resume()
        third.resume()


class Move:
    """A slot on its way from one primary to another."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.cluster, self.slot = cluster, slot(key)
        self.source = cluster.primary_of(self.slot)
        self.to = cluster.other_than(self.source)
        self.neighbour = next(other for other in map("other {}".format, itertools.count()) if slot(other) == self.slot)

    def stages(self) -> list[Callable[[], object]]:
        where = self.slot, self.to
        return [
            lambda: None,
            lambda: self.cluster.migrate_slot_begin(*where),
            lambda: self.cluster.migrate_keys(*where),
            lambda: self.cluster.migrate_slot_end(*where),
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_exact_while_a_slot_moves(cluster, kind):
    """ASK and MOVED are followed, by threads and coroutines, for keys that were there before and for new ones."""
    move = Move(cluster, "k")
    store = patient(cluster.url)
    limiter = Limiter(f"10/4 weeks by {kind}", store=store, on_error="raise")

    async def hit() -> list[int]:
        waiting = AsyncLimiter(f"10/4 weeks by {kind}", store=store, on_error="raise")
        left = []
        for stage in move.stages():
            stage()
            left += [(await waiting.hit("k")).remaining, limiter.hit("k").remaining]
            left.append((await waiting.hit(move.neighbour, 0)).remaining)
            left.append(limiter.hit(move.neighbour).remaining)
        before = asked(move.source)
        assert limiter.hit("k") and await waiting.hit("k")
        assert asked(move.source) == before
        return left

    assert asyncio.run(closing(store, hit())) == [9, 8, 10, 9, 7, 6, 9, 8, 5, 4, 8, 7, 3, 2, 7, 6]
    assert not limiter.hit("k")


def test_counts_are_exact_under_load_while_slots_move(cluster):
    """Nobody is refused an answer, and exactly the limit passes."""
    store, stop = patient(cluster.url), threading.Event()
    limiter = Limiter("100000/4 weeks by fixed-window", store=store, on_error="raise")

    def hammer() -> int:
        admitted = 0
        while not stop.is_set():
            admitted += limiter.hit("k").allowed
        return admitted

    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(hammer) for _ in range(3)]
        for _ in range(4):
            for stage in Move(cluster, "k").stages():
                stage()
                time.sleep(0.02)
        stop.set()
        admitted = sum(job.result(60) for job in jobs)
    assert limiter.peek("k", 0).remaining == 100_000 - admitted


@pytest.mark.parametrize("way", WAYS)
def test_seeds_that_do_not_answer_leave_time_for_one_that_does(cluster, way):
    """The third seed is asked within the deadline, though two say nothing."""
    with silent() as one, black_hole() as two:
        url = cluster.url.replace("127.0.0.1", f"127.0.0.1:{one},127.0.0.1:{two},127.0.0.1")
        with opened(way, url, **PATIENTLY) as (limiter, _):
            assert [limiter.hit(next(keys_at(cluster, node))).remaining for node in cluster.primaries] == [9_999] * 3


@pytest.mark.parametrize("way", WAYS)
def test_a_cluster_none_of_whose_nodes_answers_costs_a_few_decisions_their_time(way):
    """Three decisions wait, and a hundred after them do not."""
    with silent() as port, opened(way, f"redis+cluster://127.0.0.1:{port},localhost:{port}") as (limiter, _):
        with at_most(SOON + 2 * DEADLINE + SLACK):
            assert all(limiter.hit(f"k{n}").degraded for n in range(3))
        with at_most(SLACK):
            assert all(limiter.hit(f"k{n}").degraded for n in range(100))


def test_the_documented_rights_are_enough_and_none_is_needless(cluster):
    """Of docs/redis.md, for a cluster, while a slot moves too."""
    page = (ROOT / "docs" / "redis.md").read_text()
    alone = re.findall(r"^ACL SETUSER headgate .* -@all (.+)$", page, re.M)[0].split()
    more = re.findall(r"`(\+[^`]+)`", page[page.index("a cluster also") : page.index("ACL SETUSER")])

    def answers(rights: list[str]) -> list[bool]:
        for node in cluster.primaries:
            node.command("ACL", "SETUSER", "limiter", "reset", "on", ">pw", "~hg1:*", *alone, *rights)
        store, answered = patient(cluster.url.replace("://", "://limiter:pw@")), []
        for stage in Move(cluster, "k").stages():
            stage()
            answered.append(not Limiter("10/hour", store=store, on_error="deny").hit("k", 0).degraded)
        store.close()
        return answered

    assert answers(more) == [True] * 4
    for right in more:
        assert not all(answers([each for each in more if each != right])), right


def test_what_a_moving_slot_cannot_answer_concerns_nobody_else(cluster):
    """A server cannot look at several new keys of a slot on its way; others on that server are answered as ever."""
    move = Move(cluster, "k")
    limiter = Limiter("10/hour; 100/day", store=patient(cluster.url), on_error="deny")
    begin, finish = move.stages()[:2], move.stages()[2:]
    for stage in begin:
        stage()
    try:
        for _ in range(10):
            limiter.hit(move.neighbour)
        assert [limiter.hit(next(keys_at(cluster, node))).degraded for node in cluster.primaries] == [False] * 3
    finally:
        for stage in finish:
            stage()
    assert not limiter.hit(move.neighbour).degraded
