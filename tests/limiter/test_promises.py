"""Promises are kept: whichever callers give up, no more leave in any time than the limit says."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import pytest

from headgate import AsyncLimiter, AsyncShaper, Limit, Limiter, steps
from headgate.limiter import promises
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.homes import LATER, in_each_home, in_line, let_run, until, waiting
from tests.support.inside import asleep, entries, promises_left, timers_of, turns_left


class Left(NamedTuple):
    """Units that left, and when."""

    at_us: int
    units: int


def beyond(limit: Limit, departures: list[Left]) -> list[tuple[int, int, int]]:
    """Windows in which more left than burst + rate * window: from, to, units. Each way of choosing one is tried.

    Instants are whole microseconds, rounded up, so a window may seem shorter than it is by less than one.
    """
    departures = sorted(departures)
    found = []
    for first in range(len(departures)):
        units = 0
        for last in departures[first:]:
            units += last.units
            length = last.at_us - departures[first].at_us + 1
            if (units - limit.burst) * limit.period_us > limit.amount * length:
                found.append((departures[first].at_us, last.at_us, units))
    return found


def take_part(limiters: list[Any], clock: ManualClock, chance: random.Random, steps: int) -> list[Left]:
    """Hits, reservations, and reservations that are cancelled before their time has come; what left, and when."""
    burst, departures = limiters[0].limits[0].burst, []
    waiting: list[tuple[int, int, Any]] = []
    for _ in range(steps):
        clock.us += chance.choice((0, 0, 1, chance.randrange(400_000), chance.randrange(2_000_000)))
        departures += [Left(at, cost) for at, cost, _ in waiting if at <= clock.us]
        waiting = [each for each in waiting if each[0] > clock.us]
        act, cost, limiter = chance.random(), chance.randint(1, burst), chance.choice(limiters)
        if act < 0.25:
            if limiter.hit("k", cost):
                departures.append(Left(clock.us, cost))
        elif act < 0.65:
            reservation = limiter.reserve("k", cost)
            waiting.append((clock.us + reservation.decision.retry_us, cost, reservation))
        elif waiting:
            for each in chance.sample(waiting, chance.randint(1, len(waiting))):
                if each[0] > clock.us:
                    each[2].cancel()
                    waiting.remove(each)
    return departures + [Left(at, cost) for at, cost, _ in waiting]


@pytest.mark.parametrize(
    "text", ["1/second", "1/second burst 1", "3/second burst 2", "7/second burst 5", "2/second burst 9"]
)
def test_no_window_has_more_than_the_limit_says_whoever_is_cancelled(home, text):
    """Random reservations and cancellations in any order, where a store can be shared by three limiters that know
    nothing of each other; every window of what left is counted."""
    for seed in range(40 if home.kind == "memory" else 5):
        clock, chance = ManualClock(LATER), random.Random(f"{text} {seed}")
        count = 1 if home.kind == "memory" else 3
        limiters = [home.limiter(text, clock=clock, namespace=f"{seed}") for _ in range(count)]
        assert beyond(limiters[0].limits[0], take_part(limiters, clock, chance, 60)) == [], seed


def test_ten_of_twenty_give_up_in_the_middle(home, clock):
    """Later callers are promised instants behind the ten that stay, not the instants of these."""
    limiter = home.limiter("1/second burst 1", clock=clock)
    queue = [limiter.reserve("k") for _ in range(20)]
    assert [each.delay for each in queue] == list(range(20))
    for each in queue[5:15]:
        each.cancel()
    assert [limiter.reserve("k").delay for _ in range(3)] == [20, 21, 22]


@in_each_home
async def test_those_behind_a_task_that_gives_up_move_up(store, clock):
    """Each leaves at the first instant that is free when its turn comes, and what is left over is given back."""
    limiter = AsyncLimiter("1/second burst 1", store=store, on_error="raise")
    await limiter.hit("k")
    left: list[tuple[float, int]] = []

    async def one(number: int) -> None:
        await limiter.acquire("k")
        left.append((clock.now() - LATER, number))

    tasks = []
    for number in range(12):
        tasks.append(asyncio.create_task(one(number)))
        await waiting(limiter, number + 1, asleep=number + 1)
    for number in (3, 7, 0, 4, 11, 8):
        tasks[number].cancel()
    await asyncio.gather(*(tasks[number] for number in (3, 7, 0, 4, 11, 8)), return_exceptions=True)
    await until(lambda: not steps.unfinished)
    assert (await limiter.peek("k", 0)).reset_after == 7.0  # the hit, and six that wait
    while len(left) < 6:
        clock.advance(1)
        await let_run()
    assert left == [(1, 1), (2, 2), (3, 5), (4, 6), (5, 9), (6, 10)]
    assert (in_line(limiter), promises_left(limiter), turns_left(timers_of(limiter))) == (0, {}, {})


@awaited
async def test_a_task_that_gives_up_as_it_is_called_leaves_its_turn_to_the_next(clock):
    """Its instant has come, and it is cancelled before it goes on: the next one leaves now."""
    limiter = AsyncLimiter("1/second burst 1", clock=clock)
    await limiter.hit("k")
    first, second, third = (asyncio.create_task(limiter.acquire("k")) for _ in range(3))
    await waiting(limiter, 3, asleep=3)
    clock.us += 1_000_000
    timers_of(limiter).wake_due()
    first.cancel()
    await let_run()
    assert (first.cancelled(), second.done(), third.done()) == (True, True, False)
    assert (await limiter.peek("k", 0)).reset_after == 2.0
    clock.advance(1)
    await third


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_whatever_costs_and_order_they_give_up_in_all_is_given_back(order, clock):
    """A promise that is given up in the middle is given back when every promise behind it is given up too."""
    limiter = Limiter("7/second burst 3", clock=clock)
    limiter.hit("k", 2)
    before = limiter.peek("k", 0).verdicts
    reservations = [limiter.reserve("k", cost) for cost in (1, 3, 2, 1)]
    for number in order:
        reservations[number].cancel()
    assert limiter.peek("k", 0).verdicts == before
    assert promises_left(limiter) == {}


def test_a_promise_is_given_back_when_those_behind_it_have_left(clock):
    """A reservation cancelled in its time gives back the nine units that have not drained, even after others left."""
    limiter = Limiter("10/second", clock=clock)
    limiter.hit("k", 10)
    first, second = limiter.reserve("k", 10), limiter.reserve("k")
    clock.advance(second.delay)
    first.cancel()
    assert (first.delay, second.delay, limiter.peek("k", 0).remaining) == (1.0, 1.1, 9)


def test_what_is_given_up_in_the_middle_is_not_given_back_twice(clock):
    """The last caller gives back what was given up before it; later callers are charged at its place."""
    limiter = Limiter("1/second burst 1", clock=clock)
    limiter.hit("k")
    first, second, third = (limiter.reserve("k") for _ in range(3))
    second.cancel()
    third.cancel()
    assert [limiter.reserve("k").delay for _ in range(2)] == [2.0, 3.0]
    second.cancel()
    third.cancel()
    first.cancel()
    assert limiter.reserve("k").delay == 4.0


def test_promises_of_many_keys_are_forgotten_when_their_instants_have_passed(monkeypatch, clock):
    """Reservations that nobody settles or cancels, of more keys than are remembered."""
    monkeypatch.setattr(promises, "FEW", 100)
    limiter = Limiter("1/second burst 1", clock=clock)
    for number in range(5_000):
        limiter.hit(f"{number}")
        limiter.reserve(f"{number}")
        clock.advance(0.01)
    assert len(promises_left(limiter)) <= 400


async def shape_and_give_up(shaper: AsyncShaper, clock: ManualClock, chance: random.Random) -> list[Left]:
    """Tasks come, wait and are cancelled at random; those that leave, and when."""
    left: list[Left] = []

    async def one(cost: int) -> None:
        if await shaper.shape("k", cost):
            left.append(Left(clock.us, cost))

    tasks: list[asyncio.Task[None]] = []

    def answered() -> bool:
        """Whether every task that has not left or given up is asleep: none is late because of a server."""
        return sum(not task.done() for task in tasks) == asleep(timers_of(shaper))

    for _ in range(80):
        act = chance.random()
        if act < 0.6:
            tasks.append(asyncio.create_task(one(chance.choice((1, 1, 1, 2)))))
        elif tasks and act < 0.85:
            chance.choice(tasks).cancel()
        await until(answered)
        for _ in range(chance.choice((0, 0, 3, 40))):  # in steps: who is woken leaves before time goes on
            clock.advance(0.01)
            await let_run(4)
    while not all(task.done() for task in tasks):
        clock.advance(0.01)
        await let_run(4)
    await asyncio.gather(*tasks, return_exceptions=True)
    return left


def test_a_shaper_keeps_its_distance_whoever_gives_up(home):
    """Random callers: each that leaves is followed by the next after the time of its own cost, never before."""
    for seed in range(10 if home.kind == "memory" else 2):
        clock = ManualClock(LATER)

        async def story(store: Store, clock: ManualClock = clock, seed: int = seed) -> None:
            shaper = AsyncShaper("10/second queue 12", store=store, namespace=f"{seed}", on_error="raise")
            left = await shape_and_give_up(shaper, clock, random.Random(seed))
            assert len(left) > 10
            assert all(one.at_us + one.units * 100_000 <= other.at_us for one, other in pairwise(left))

        home.tell(story, clock)


@in_each_home
async def test_those_behind_a_caller_that_gives_up_its_place_move_up(store, clock):
    """In a shaper too: what is left over is the last place, and it is free again."""
    shaper = AsyncShaper("1/second queue 5", store=store, on_error="raise")
    left: list[tuple[float, int]] = []

    async def one(number: int) -> None:
        assert await shaper.shape("k")
        left.append((clock.now() - LATER, number))

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await until(lambda: entries(timers_of(shaper)) == 4)
    tasks[2].cancel()
    await asyncio.wait([tasks[2]])
    assert (await shaper.enter("k")).delay == 4.0
    assert not await shaper.enter("k")
    while len(left) < 4:
        clock.advance(1)
        await let_run()
    assert left == [(0, 0), (1, 1), (2, 3), (3, 4)]
