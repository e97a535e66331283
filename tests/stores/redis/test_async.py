"""asyncio on a server: hits travel together, in order, each a decision of its own, also if tasks give up."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from functools import partial

import pytest

from headgate import AsyncLimiter, Call, Limiter, MemoryStore
from headgate.engine import Decision
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM
from tests.support import side_by_side
from tests.support.faults import MANY, PATIENT, calls, hits, run, spent, with_store
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless


@with_store("server", deadline=PATIENT)
async def test_hits_issued_at_once_travel_in_few_commands(store, server):
    """A hundred hits take at most two commands, and each has its own answer."""
    limiter = AsyncLimiter(MANY, store=store)
    await limiter.hit("warm")
    before = calls(server, "evalsha", "eval")
    decisions = await asyncio.gather(*(limiter.hit(f"k{n}") for n in range(100)))
    assert [decision.remaining for decision in decisions] == [9_999] * 100
    assert calls(server, "evalsha", "eval") - before <= 2


@with_store("proxy", deadline=PATIENT)
async def test_a_lone_hit_is_one_command_and_waits_for_nobody(store, server, proxy):
    """One hit is one round trip."""
    limiter = AsyncLimiter(MANY, store=store)
    await limiter.hit("k")
    commands, round_trips = calls(server, "evalsha", "eval"), proxy.round_trips
    await limiter.hit("k")
    assert (calls(server, "evalsha", "eval") - commands, proxy.round_trips - round_trips) == (1, 1)


@with_store("server", deadline=PATIENT)
async def test_hits_on_one_key_are_decided_in_the_order_issued(store):
    """A thousand hits count down one by one."""
    assert await hits(AsyncLimiter(MANY, store=store), 1000) == list(range(9_999, 8_999, -1))


@pytest.mark.parametrize("count", [50, 600])
@with_store("server", deadline=PATIENT)
async def test_hits_on_two_kinds_of_limits_keep_their_order_when_the_server_forgot_the_scripts(store, server, count):
    """Each limit counts down in order, though scripts are sent again on the way."""
    bucket = AsyncLimiter(MANY, store=store)
    window = AsyncLimiter("10000/4 weeks by fixed-window", store=store)
    await bucket.hit("warm")
    server.client().script_flush()
    decisions = await asyncio.gather(*((bucket, window)[n % 2].hit("k") for n in range(2 * count)))
    remaining = [decision.remaining for decision in decisions]
    assert (remaining[::2], remaining[1::2]) == ([*range(9_999, 9_999 - count, -1)],) * 2


@with_store("server", deadline=PATIENT)
async def test_a_refused_hit_does_not_disturb_its_neighbours(store):
    """Hits that travel together are admitted, refused or impossible each for itself."""
    limiter = AsyncLimiter("3/week", store=store)
    costs = [1, 3, 1, 4, 1, 1]
    decisions = await asyncio.gather(*(limiter.hit("k", cost) for cost in costs), limiter.hit("other"))
    assert [decision.allowed for decision in decisions] == [True, False, True, False, True, False, True]
    assert [decision.remaining for decision in decisions] == [2, 2, 1, 1, 0, 0, 2]
    assert decisions[3].never


def test_everything_mixed_in_one_burst_is_answered_as_by_memory(server):
    """Every kind of limit and question, shuffled and issued at once, against the same one after the other."""
    texts = [*(f"20/minute by {name} as l" for name in EVERY_ALGORITHM), "9/minute; 30/hour", "4/minute block 1h"]
    chance, clock = random.Random(5), ManualClock(1e9)
    asked = [(chance.choice(("hit", "peek", "take_up_to", "decide")), chance.choice(texts)) for _ in range(1000)]
    numbers = [(f"k{chance.randrange(4)}", chance.randrange(1, 4)) for _ in asked]

    def ask(limiter, what: str, key: str, n: int):
        if what == "decide":
            return limiter.decide(*(Call(limit, key, n) for limit in limiter.limits), Call("9/minute", f"{key}!"))
        return getattr(limiter, what)(key, n)

    async def story(store: RedisStore) -> None:
        ours = {text: AsyncLimiter(text, store=store, namespace=text) for text in texts}
        memory = MemoryStore(clock=clock)
        theirs = {text: Limiter(text, store=memory, namespace=text) for text in texts}
        await asyncio.gather(*(ask(ours[text], what, "warm", 1) for what, text in asked))
        questions = zip(asked, numbers, strict=True)
        got = await asyncio.gather(*(ask(ours[text], what, key, n) for (what, text), (key, n) in questions))
        for (what, text), (key, n), decision in zip(asked, numbers, got, strict=True):
            expected = ask(theirs[text], what, key, n)
            assert (decision.verdicts, decision.granted) == (expected.verdicts, expected.granted), (what, text, key, n)

    run(server.url, story, deadline=PATIENT, clock=clock, remember_refusals=0)


@with_store("proxy", deadline=0.5)
async def test_limits_of_different_kinds_do_not_wait_for_each_others_round_trips(store, proxy):
    """200 hits of two kinds are answered in time on a slow wire."""
    limiters = [AsyncLimiter(f"10000/week by {name}", store=store) for name in ("gcra", "fixed-window")]
    await asyncio.gather(*(limiter.hit("k") for limiter in limiters))
    proxy.delay(0.02)
    decisions = await asyncio.gather(*(limiters[n % 2].hit("k") for n in range(200)))
    assert not any(decision.degraded for decision in decisions)


def cancel(server: Server, count: int, seed: int) -> None:
    """Cancel a number of awaits at random instants, and look at every answer.

    What a key has left lies in a range of its own and only falls, so an answer to anybody else would be seen.
    """
    chance, keys, cancelled = random.Random(seed), range(16), 0
    issued, got = [0] * len(keys), [list[int]() for _ in keys]
    limits = [f"1/hour burst {4_000 * (key + 1)}" for key in keys]

    async def story(store: RedisStore) -> None:
        nonlocal cancelled
        limiters = [AsyncLimiter(limit, store=store) for limit in limits]
        loop = asyncio.get_running_loop()
        span = 0.001
        while cancelled < count:
            chosen, before = chance.choices(keys, k=50), cancelled
            tasks = [asyncio.create_task(limiters[key].hit(f"k{key}")) for key in chosen]
            for task in tasks:
                loop.call_later(span * chance.random(), task.cancel)
            for key, answer in zip(chosen, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                issued[key] += 1
                if isinstance(answer, asyncio.CancelledError):
                    cancelled += 1
                else:
                    assert isinstance(answer, Decision) and not answer.degraded, seed
                    got[key].append(answer.remaining)
            span *= 0.9 if cancelled - before < 25 else 1.1  # so that about every other is too late
        for key in keys:
            got[key] += await hits(limiters[key], 10, f"k{key}")
            issued[key] += 10

    run(server.url, story, deadline=PATIENT)
    for key in keys:
        assert got[key] == sorted(set(got[key]), reverse=True), seed
        assert 4_000 * key < got[key][-1] <= got[key][0] < 4_000 * (key + 1), seed
        assert len(got[key]) <= spent(server, f"k{key}", limits[key]) <= issued[key], seed


def test_ten_thousand_cancelled_awaits_leave_every_answer_with_its_caller(server):
    """No task gets the answer of another that was cancelled."""
    cancel(server, 10_000, seed=11)


@with_store("proxy", deadline=PATIENT)
async def test_a_cancelled_await_does_not_disturb_who_travels_with_it(store, proxy):
    """The hits that stay get their own answers, in order."""
    limiter = AsyncLimiter(MANY, store=store)
    await limiter.hit("k")
    proxy.hold()
    before = proxy.requests
    tasks = [asyncio.create_task(limiter.hit("k")) for _ in range(10)]
    await asyncio.to_thread(wait_until, lambda: proxy.requests > before, "the hits have left")
    for task in tasks[::2]:
        task.cancel()
    proxy.release()
    assert [(await task).remaining for task in tasks[1::2]] == [9_997, 9_995, 9_993, 9_991, 9_989]
    assert await hits(limiter, 1) == [9_988]


def test_one_store_serves_one_event_loop_after_the_other(server):
    """A store that was closed in one loop goes on in the next."""
    store = RedisStore(server.url, deadline=PATIENT)
    limiter = AsyncLimiter(MANY, store=store)

    async def main() -> list[int]:
        try:
            return await hits(limiter, 3)
        finally:
            await store.aclose()

    assert asyncio.run(main()) + asyncio.run(main()) == [9_999, 9_998, 9_997, 9_996, 9_995, 9_994]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_that_ended_with_connections_open_is_forgotten_by_the_next(server):
    """A new loop makes connections of its own."""
    limiter = AsyncLimiter(MANY, store=RedisStore(server.url, deadline=PATIENT))
    assert [asyncio.run(hits(limiter, 1)) for _ in range(3)] == [[9_999], [9_998], [9_997]]
    del limiter
    gc.collect()


def test_two_event_loops_at_once_share_a_store_and_no_connection(server):
    """2000 hits of two loops get 2000 different answers, in order in each loop."""
    store = RedisStore(server.url, deadline=PATIENT)
    limiter, both = AsyncLimiter(MANY, store=store), threading.Barrier(2)
    got: list[list[int]] = [[], []]

    async def main(place: int) -> None:
        both.wait()
        for _ in range(20):
            got[place] += await hits(limiter, 50)
        await store.aclose()

    with side_by_side(partial(asyncio.run, main(place)) for place in range(2)):
        pass
    assert sorted(got[0] + got[1]) == list(range(8_000, 10_000))
    assert got == [sorted(each, reverse=True) for each in got]
