"""The leaky bucket as a queue: what is let in leaves at the constant rate, and nothing that was let in is lost."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor

import pytest

from headgate import AsyncShaper, InvalidCall, InvalidLimit, Limit, Shaper
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.homes import LATER, Home, Interrupting, in_each_home, let_run, until
from tests.support.inside import entries, timers_of
from tests.support.processes import CONTEXT

LEDGER = ((0, 4_000, 4_000), (1_000, 2_500, 2_500), (500, 3_200, 3_200), (700, 6_000, 4_300))
"""Each second: how many wait already, arrive, and are let in, by 3000/second with room for 5000."""


def shaper(home: Home, text: str, clock: ManualClock) -> Shaper:
    return Shaper(text, store=home.store(clock), on_error="raise")


def after_start(clock: ManualClock) -> int:
    return clock.us - round(LATER * 1e6)


def test_the_worked_example(home, clock):
    """4,000, 2,500, 3,200 and 6,000 come: 14,000 leave, 3,000 each second, and only the last 1,700 find no room."""
    queue = shaper(home, "3000/second queue 5000", clock)
    leaving: list[int] = []
    for second, (waiting, come, let_in) in enumerate(LEDGER):
        clock.set(LATER + second)
        now = after_start(clock)
        assert sum(at >= now for at in leaving) == waiting
        places = [queue.enter("jobs") for _ in range(come)]
        assert [bool(place) for place in places] == [True] * let_in + [False] * (come - let_in)
        leaving += [now + place.delay_us for place in places[:let_in]]
        assert 5_000 - places[let_in - 1].decision.remaining == waiting + let_in
        assert all(place.delay_us == 0 and place.decision.retry_us > 0 for place in places[let_in:])
    assert leaving == [-(-1_000_000 * number // 3_000) for number in range(14_000)]


@awaited
async def test_the_worked_example_awaited(clock):
    """A tenth of it, with tasks that really wait: in order, and as many a second as there should be."""
    queue = AsyncShaper("300/second queue 500", clock=clock)
    left: list[int] = []
    refused: list[int] = []

    async def one(number: int) -> None:
        (left if await queue.shape("jobs") else refused).append(number)

    tasks, come = [], 0
    for second, (_, arriving, _) in enumerate(LEDGER):
        clock.set(LATER + second)
        await let_run()
        tasks += [asyncio.create_task(one(come + each)) for each in range(arriving // 10)]
        come += arriving // 10
        await let_run()
        assert len(left) == 300 * second + 1
        clock.set(LATER + second + 1 - 1e-6)
        await let_run()
        assert len(left) == 300 * (second + 1)
    clock.advance(1)
    await asyncio.gather(*tasks)
    assert (left, refused) == (list(range(1_400)), list(range(1_400, 1_570)))


@in_each_home
async def test_the_same_by_the_real_clock(store):
    """200 at once where there is room for 120: each leaves or is refused, and none leaves early.

    A busy machine may ask for so long that there is room for all: a clock that stands still has the exact refusals.
    """
    queue = AsyncShaper("1000/second queue 120", store=store, on_error="raise")
    await queue.enter("warm")
    clock = store.clock
    left: list[tuple[int, int]] = []
    refused: list[tuple[int, int]] = []
    start = clock.now_us()

    async def one(number: int) -> None:
        decision = await queue.shape("jobs")
        (left if decision else refused).append((number, clock.now_us() - start))

    await asyncio.gather(*(one(number) for number in range(200)))
    assert len(left) >= 120
    assert sorted(number for number, _ in left + refused) == list(range(200))
    assert all(at >= 1_000 * place for place, (_, at) in enumerate(left))


@in_each_home
async def test_a_pause_after_the_question_changes_no_order(store, clock):
    """The first caller leaves first, though it was held up for 5 ms between the answer and its sleep."""
    queue = AsyncShaper("1000/second queue 20", store=store, on_error="raise")
    await queue.enter("k", 10)
    enter, left = queue.enter, []

    async def one(number: int) -> None:
        await queue.shape("k")
        left.append(number)

    async def held_up(*place):
        departure = await enter(*place)
        clock.advance(0.005)
        return departure

    queue.enter = held_up  # type: ignore[method-assign]
    tasks = [asyncio.create_task(one(0))]
    await until(lambda: clock.now() > LATER)
    queue.enter = enter  # type: ignore[method-assign]
    tasks.append(asyncio.create_task(one(1)))
    while len(left) < 2:
        await let_run(100)
        clock.advance(0.001)
    assert left == [0, 1]
    await asyncio.gather(*tasks)


def test_threads_leave_at_the_rate_too(home, clock):
    """`shape` sleeps until it is time, to the microsecond."""
    queue = shaper(home, "7/second queue 3", clock)
    at = []
    for _ in range(5):
        assert queue.shape("k")
        at.append(after_start(clock))
    assert at == [0, 142_858, 285_715, 428_572, 571_429]


def test_a_pause_is_not_saved_up(home, clock):
    """After it the first leaves at once, and the next one interval later."""
    queue = shaper(home, "10/second queue 3", clock)
    for _ in range(3):
        clock.advance(10)
        assert [queue.enter("k").delay for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_full_queue_refuses_at_once(home, clock):
    """A refusal says when there is room; a request that can never fit is refused for ever. No time goes by."""
    queue = shaper(home, "10/second queue 3", clock)
    places = [queue.enter("k") for _ in range(3)]
    refused = queue.shape("k")
    assert (bool(refused), refused.retry_after, clock.now()) == (False, 0.1, LATER)
    assert queue.shape("k", 4).never
    assert [place.delay for place in places] == [0.0, 0.1, 0.2]
    clock.advance(0.1 - 1e-6)
    assert not queue.enter("k")
    clock.advance(1e-6)
    assert queue.enter("k").delay == 0.2
    assert queue.enter("other").delay == 0.0


def test_a_cost_takes_that_many_places(home, clock):
    """It leaves when its turn begins, and the next one that much later."""
    queue = shaper(home, "10/second queue 6", clock)
    assert [queue.enter("k", cost).delay for cost in (3, 1, 2)] == [0.0, 0.3, 0.4]
    assert not queue.enter("k")


def test_who_is_interrupted_gives_its_place_back(home):
    """Ctrl-C while it waits."""
    queue = shaper(home, "10/second queue 3", Interrupting(LATER))
    assert queue.shape("k")
    with pytest.raises(KeyboardInterrupt):
        queue.shape("k")
    assert [queue.enter("k").delay for _ in range(2)] == [0.1, 0.2]
    assert not queue.enter("k")


@in_each_home
async def test_who_is_cancelled_gives_its_place_back(store, clock):
    """While it waits or while it asks, one or all of them: there is room again, and nothing stays."""
    queue = AsyncShaper("10/second queue 4", store=store, on_error="raise")
    assert await queue.shape("k")
    before = asyncio.all_tasks()
    for turns in (0, 1, 2, 5, 40):
        tasks = [asyncio.create_task(queue.shape("k")) for _ in range(3)]
        await let_run(turns)
        for task in reversed(tasks):
            task.cancel()
        await asyncio.wait(tasks)
        await until(lambda: asyncio.all_tasks() <= before)  # what gives back has ended
    places = [await queue.enter("k") for _ in range(4)]
    assert [place.delay for place in places if place] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("home", ["shared", "redis"], indirect=True)
def test_two_shapers_on_one_store_have_one_queue(home, clock):
    """Whichever of them is asked."""
    one, other = (shaper(home, "10/second queue 6", clock) for _ in range(2))
    assert [each.enter("k").delay_us for each in (one, other, other, one, one, other)] == [
        100_000 * place for place in range(6)
    ]
    assert not one.enter("k") and not other.enter("k")


def enter_there(url: str, count: int) -> list[int]:
    """In a process of its own: the delays of the callers that found room, all at one instant."""
    with Shaper("3000/second queue 500", store=url, clock=ManualClock(LATER), on_error="raise") as queue:
        places = [queue.enter("k") for _ in range(count)]
    return [place.delay_us for place in places if place]


@pytest.mark.parametrize("home", ["shared", "redis"], indirect=True)
def test_two_processes_have_one_queue(home):
    """Together they get every place once; each of them in order."""
    with ProcessPoolExecutor(2, mp_context=CONTEXT) as pool:
        one, other = pool.map(enter_there, [home.url] * 2, [300, 300])
    assert one == sorted(one) and other == sorted(other)
    assert sorted(one + other) == [-(-1_000_000 * place // 3_000) for place in range(500)]


def test_a_queue_is_read(clock):
    """`queue` is how many there is room for; without it, the amount."""
    assert (Shaper("3000/second queue 5000").limit.amount, Shaper("3000/second queue 5000").limit.burst) == (3000, 5000)
    assert Shaper("3000/second").limit.burst == 3000
    assert Shaper("10/minute queue 7 by leaky-bucket as jobs").limit.name == "jobs"
    assert Shaper("10/second as queue").limit == Limit(10, "second", name="queue")
    assert Shaper("10/second QUEUE 4 as queue").limit == Limit(10, "second", burst=4, name="queue")
    assert AsyncShaper(Limit(10, "second", burst=3)).limit.burst == 3
    for kind in ("token-bucket", "gcra", "leaky-bucket"):
        queue = Shaper(f"10/second queue 2 by {kind}", clock=clock)
        assert [queue.enter("k").delay for _ in range(2)] == [0.0, 0.1]


@pytest.mark.parametrize(
    "wrong",
    [
        "5/second by fixed-window",
        "50/second by sliding-window",
        "5/second by sliding-log",
        "5/second queue 5 block 1m",
        "5/second queue",
        "5/second queue 0",
        "5/second queue 3 burst 3",
        "queue 5",
        "5/second; 10/minute",
        "",
    ],
)
@pytest.mark.parametrize("kind", [Shaper, AsyncShaper])
def test_what_is_no_queue_is_refused(kind, wrong):
    """Limits of other algorithms, blocks, several limits and empty queues are an `InvalidLimit`."""
    with pytest.raises(InvalidLimit):
        kind(wrong)


def test_the_refusal_says_what_a_shaper_is():
    """The error shows how a queue is written, and the limit that is none."""
    with pytest.raises(InvalidLimit, match="a shaper needs a bucket without a block, .*queue 5000'.*fixed-window"):
        Shaper(Limit(5, "second", algorithm="fixed-window"))


def test_bad_keys_and_costs_take_no_place():
    """A key or a cost of the wrong kind is an `InvalidCall`, and the queue stays empty."""
    queue = Shaper("10/second queue 3", clock=ManualClock(LATER))
    for key, cost in (("", 1), (None, 1), ("k", -1), ("k", 1.5), ("k", True)):
        with pytest.raises(InvalidCall):
            queue.enter(key, cost)
        with pytest.raises(InvalidCall):
            queue.shape(key, cost)
    assert queue.enter("k").delay == 0.0


def test_a_place_that_takes_longer_than_the_timeout_is_refused_at_once(home, clock):
    """One microsecond too long: no time goes by, no place is taken, and the retry is told. Just as long: it waits."""
    queue = shaper(home, "10/second queue 8", clock)
    for _ in range(4):
        queue.enter("k")
    refused = queue.shape("k", timeout=0.399999)
    assert (refused.allowed, refused.retry_us, refused.remaining, clock.now()) == (False, 1, 4, LATER)
    assert queue.shape("k", 2, timeout=0.4)
    assert clock.now() == LATER + 0.4
    assert queue.enter("k").delay == 0.2
    assert not queue.shape("k", timeout=0)
    clock.advance(0.3)
    assert queue.shape("k", timeout=0)


def test_without_a_timeout_the_places_are_the_bound(home, clock):
    """As with `acquire`: None waits as long as it takes."""
    queue = shaper(home, "1/minute queue 3", clock)
    assert [bool(queue.shape("k", timeout=None)) for _ in range(3)] == [True] * 3
    assert clock.now() == LATER + 120


@in_each_home
async def test_a_timeout_awaited(store, clock):
    """A place that is beyond the timeout is refused with the rest of the wait; a nearer one is waited for."""
    queue = AsyncShaper("10/second queue 8", store=store, on_error="raise")
    assert await queue.shape("k", timeout=0)
    refused = await queue.shape("k", timeout=0.05)
    assert (refused.allowed, refused.retry_after) == (False, 0.05)
    waiter = asyncio.create_task(queue.shape("k", timeout=0.1))
    await until(lambda: entries(timers_of(queue)))
    clock.advance(0.1)
    assert await waiter


@pytest.mark.parametrize("wrong", [-1, float("nan"), True, "1"])
def test_a_timeout_that_is_none_is_refused(wrong):
    """A timeout is a number of seconds from 0."""
    with pytest.raises(InvalidCall, match="number of seconds from 0"):
        Shaper("1/second", clock=ManualClock(LATER)).shape("k", timeout=wrong)
