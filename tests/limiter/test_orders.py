"""Waiting in an order: priorities, fair shares, several subjects in one decision, and streams that are paced."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, Limit, Limiter, RateLimited
from headgate.testing import ManualClock
from headgate.waiting import FairQueue
from tests.support.awaiting import awaited
from tests.support.homes import LATER, let_run

FIRST = 12
LIMITS = ["10/second burst 1", "10/second by fixed-window", "10/second by sliding-log"]


async def served(limiter: AsyncLimiter, clock: ManualClock, turns: int, *callers: dict[str, Any]) -> list[int]:
    """Return which callers go, if each has twelve tasks that ask again and again; the first ones need not wait."""
    went: list[int] = []
    turns += FIRST

    async def ask(at: int, given: dict[str, Any]) -> None:
        while len(went) < turns:
            if await limiter.acquire("k", **given):
                went.append(at)

    tasks = [asyncio.create_task(ask(at, given)) for at, given in enumerate(callers) for _ in range(12)]
    while len(went) < turns:
        await let_run()
        clock.advance(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return went[FIRST:turns]


@pytest.mark.parametrize("text", LIMITS)
@awaited
async def test_shares_are_as_the_weights(text):
    """Of one budget each tenant gets its share, within 2 %, and the budget is used up all the time."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter(text, clock=clock)
    weights = {"a": 1, "b": 2, "c": 4}
    callers = [{"fair_by": name, "weight": weight} for name, weight in weights.items()]
    went = Counter(await served(limiter, clock, 700, *callers))
    assert [abs(went[at] - 100 * weight) <= 2 for at, weight in enumerate(weights.values())] == [True] * 3
    assert clock.now() - LATER <= 73  # ten a second


@awaited
async def test_shares_count_units_not_calls():
    """A tenant whose calls cost four units gets a quarter of the calls."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("40/second burst 4", clock=clock)
    went = Counter(await served(limiter, clock, 500, {"fair_by": "a", "cost": 4}, {"fair_by": "b"}))
    assert abs(went[0] - 100) <= 2


@awaited
async def test_a_share_that_is_not_used_is_free_for_others():
    """A tenant that does not wait leaves its share to others, and a pause earns it nothing."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("10/second burst 1", clock=clock)
    assert await served(limiter, clock, 50, {"fair_by": "a"}) == [0] * 50
    went = Counter(await served(limiter, clock, 200, {"fair_by": "a"}, {"fair_by": "late", "weight": 1}))
    assert abs(went[0] - 100) <= 2


@pytest.mark.parametrize("text", LIMITS)
@awaited
async def test_the_highest_priority_goes_first_and_none_starves(text):
    """Nine turns in ten are of the highest priority that waits; the tenth is for the caller that waits longest."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter(text, clock=clock)
    went = Counter(await served(limiter, clock, 500, {"priority": 5}, {"priority": 1}, {}))
    assert abs(went[0] - 450) <= 1
    assert went[1] >= 20 and went[2] >= 20


@awaited
async def test_a_caller_without_an_order_waits_among_the_others():
    """Its priority is 0; one of higher priority that comes later goes before it, but for the head of the line."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("1/second burst 1 by fixed-window", clock=clock)
    await limiter.hit("k")
    done: list[str] = []

    async def ask(name: str, **given: Any) -> None:
        await limiter.acquire("k", **given)
        done.append(name)

    tasks = []
    for name, given in (("head", {}), ("plain", {}), ("low", {"priority": -1}), ("high", {"priority": 1})):
        tasks.append(asyncio.create_task(ask(name, **given)))
        await let_run()
    while len(done) < 4:
        clock.advance(1)
        await let_run()
    await asyncio.gather(*tasks)
    assert done == ["head", "high", "plain", "low"]
    assert limiter.waiting == 0


@awaited
async def test_a_waiter_that_gives_up_leaves_its_place():
    """Cancelled in the line or at its head, or refused at its timeout: the others go on, and nothing stays charged."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("1/second burst 1", clock=clock)
    await limiter.hit("k")
    tasks = [asyncio.create_task(limiter.acquire("k", fair_by=name)) for name in "abcd"]
    late = asyncio.create_task(limiter.acquire("k", fair_by="e", timeout=1.5))
    await let_run()
    tasks[0].cancel()
    tasks[2].cancel()
    for _ in range(4):
        await let_run()
        clock.advance(1)
    await let_run()
    assert [task.done() and not task.cancelled() for task in tasks] == [False, True, False, True]
    assert not (await late).allowed
    assert limiter.waiting == 0


def queues() -> int:
    """The number of queues in this process, those of other tests included."""
    return sum(type(each) is FairQueue for each in gc.get_objects())


@awaited
async def test_each_caller_may_have_a_priority_of_its_own():
    """An app that numbers its callers leaves no trace of those that went, while others wait."""
    clock, others = ManualClock(LATER), queues()
    limiter = AsyncLimiter("1/second burst 1", clock=clock)
    waiting = [asyncio.create_task(limiter.acquire("k", priority=number)) for number in range(3)]
    for number in range(3, 200):
        waiting.append(asyncio.create_task(limiter.acquire("k", priority=number)))
        await let_run()
        clock.advance(1)
        waiting = [task for task in waiting if not task.done()]
    assert 0 < len(waiting) < 5
    assert queues() - others < 100
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_threads_wait_in_an_order_too():
    """The same arguments, without an event loop: nobody waits, so the caller goes at the instant of the limit."""
    clock = ManualClock(LATER)
    limiter = Limiter("1/second burst 1", clock=clock)
    assert [limiter.acquire("k", fair_by="a").allowed, limiter.acquire("k", priority=3).allowed] == [True, True]
    assert clock.now() == LATER + 1


@pytest.mark.parametrize(
    "given", [{"priority": 1.5}, {"priority": True}, {"fair_by": 7}, {"weight": 2}, {"fair_by": "a", "weight": 0}]
)
@awaited
async def test_an_order_that_cannot_be_is_an_error(given):
    """In both limiters, whether or not the caller has to wait."""
    with pytest.raises(InvalidCall):
        Limiter("5/second").acquire("k", **given)
    with pytest.raises(InvalidCall):
        await AsyncLimiter("5/second").acquire("k", **given)


BOT, CHAT = Limit(30, per="1s", burst=1, name="bot"), Limit(20, per="1m", burst=20, name="chat")


def test_acquire_over_several_subjects_in_a_thread():
    """30 a second for the bot and 20 a minute for each chat: a message waits for both, and is charged for both."""
    clock = ManualClock(LATER)
    limiter = Limiter(BOT, clock=clock)
    for number in range(42):
        assert limiter.acquire_all(Call(BOT, "bot"), Call(CHAT, f"chat:{number % 2}")).allowed
    assert clock.now() == pytest.approx(LATER + 3 + 1 / 30, abs=1e-5)  # the 21st message of each chat
    late = limiter.acquire_all(Call(BOT, "bot"), Call(CHAT, "chat:0"), timeout=1)
    assert (late.allowed, late.binding) == (False, CHAT)
    assert limiter.decide(Call(BOT, "bot"), Call(CHAT, "chat:9")).allowed is False
    clock.advance(0.1)
    assert limiter.decide(Call(BOT, "bot"), Call(CHAT, "chat:9")).allowed, "the refused message left nothing charged"


@pytest.mark.parametrize("kind", ["", " by fixed-window"])
@awaited
async def test_acquire_over_several_subjects_in_a_loop(kind):
    """Tasks wait together; a cancelled one is charged nothing."""
    clock = ManualClock(LATER)
    wide, narrow = Limit.parse(f"3/second burst 3{kind} as w"), Limit.parse(f"1/second burst 1{kind} as n")
    limiter = AsyncLimiter(wide, clock=clock)
    done: list[str] = []

    async def ask(key: str) -> None:
        assert (await limiter.acquire_all(Call(wide, "all"), Call(narrow, key))).allowed
        done.append(key)

    tasks = [asyncio.create_task(ask(key)) for key in ("a", "a", "b", "b", "c")]
    await let_run()
    assert sorted(done) == ["a", "b", "c"]
    tasks[1].cancel()
    clock.advance(1)
    await let_run()
    assert sorted(done) == ["a", "b", "b", "c"]
    assert limiter.waiting == 0


def test_a_pausable_limiter_cannot_wait_for_several_subjects():
    """It would not know of a pause that begins while it waits."""
    with pytest.raises(InvalidCall, match="pausable"):
        Limiter(BOT, pausable=True).acquire_all(Call(BOT, "bot"))


def test_a_stream_is_paced_by_its_bytes():
    """Each chunk comes when its length fits, unchanged; one above the burst waits for all of its parts."""
    clock = ManualClock(LATER)
    limiter = Limiter("1000/second burst 500", clock=clock)
    chunks = [b"a" * 500, b"", b"b" * 1700, b"c"]
    came = [(chunk, round(clock.now() - LATER, 3)) for chunk in limiter.stream("k", chunks)]
    assert came == [(chunks[0], 0.0), (b"", 0.0), (chunks[2], 1.7), (b"c", 1.701)]


@pytest.mark.parametrize("awaits", [False, True])
@awaited
async def test_a_stream_is_paced_in_an_event_loop(awaits):
    """From a generator of either kind; a reader that stops is charged for what it has got."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("10/second burst 10", clock=clock)

    async def pieces() -> AsyncIterator[str]:
        for _ in range(5):
            yield "x" * 8

    got = []

    async def read() -> None:
        async for chunk in limiter.stream("k", pieces() if awaits else ["x" * 8] * 5):
            got.append((len(chunk), round(clock.now() - LATER, 1)))
            if len(got) == 3:
                return

    reading = asyncio.create_task(read())
    while not reading.done():
        await let_run()
        clock.advance(0.1)
    await reading
    assert got == [(8, 0.0), (8, 0.6), (8, 1.4)]


@awaited
async def test_a_generator_ends_with_the_reader_of_its_stream():
    """Its `finally` runs when the reader stops, in threads and in an event loop, for a generator of either kind."""
    ended = []

    def pieces(name: str) -> Iterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            ended.append(name)

    async def awaited_pieces() -> AsyncIterator[bytes]:
        for piece in pieces("inner"):
            try:
                yield piece
            finally:
                ended.append("awaited")

    kept = [pieces("plain"), pieces("in a loop")]  # so that only `stream` can end them
    plain: Any = Limiter("10/second").stream("k", kept[0])
    assert next(plain) == b"a"
    plain.close()
    for chunks in (kept[1], awaited_pieces()):
        read: Any = AsyncLimiter("10/second").stream("k", chunks)
        assert await anext(read) == b"a"
        await read.aclose()
    assert ended[:3] == ["plain", "in a loop", "awaited"]


def test_a_stream_that_cannot_be_paced_is_an_error():
    """A limit in flight, a limit of nothing, a body in place of its chunks, and a caller that may not wait."""
    whole: list[Any] = [b"body", "body"]
    for body in whole:
        with pytest.raises(InvalidCall, match="needs chunks"):
            Limiter("5/second").stream("k", body)
    for text in ("5 in flight", "0/second"):
        with pytest.raises(InvalidCall):
            Limiter(text).stream("k", [b"a"])
    limiter = Limiter("1/second burst 1", clock=ManualClock(LATER), max_waiting=0)
    with pytest.raises(RateLimited):
        list(limiter.stream("k", [b"ab"]))
