"""Pumps in an event loop: read ahead as far as there is room, and nothing that was taken is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count

import pytest

from headgate import AsyncShaper
from headgate.shaper import AsyncPump
from headgate.testing import ManualClock
from tests.support.awaiting import Test, awaited_by, in_time
from tests.support.homes import LATER, in_each_home, let_run, until

ROOM = 3


class Scene:
    """A shaper on a clock, and a source that counts."""

    def __init__(self, text: str = f"10/second queue {ROOM}") -> None:
        self.clock = ManualClock(LATER)
        self.shaper = AsyncShaper(text, clock=self.clock)
        self.taken: list[int] = []

    async def source(self, items, error: Exception | None = None) -> AsyncIterator[int]:
        for item in items:
            self.taken.append(item)
            yield item
        if error is not None:
            raise error

    async def drive(self, work: Awaitable[None], step: float = 0.1) -> None:
        """Let time go by until it is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await let_run()
            if not task.done():
                self.clock.advance(step)
        await task


def scened(text: str = f"10/second queue {ROOM}") -> Callable[[Test], Callable[..., None]]:
    """A test with a scene, in an event loop of its own."""
    return awaited_by(lambda story: in_time(lambda: story(scene=Scene(text))), gives=("scene",))


async def take(pump: AsyncPump[int], into: list[tuple[int, float]], clock: ManualClock) -> None:
    """Write down what leaves, and when."""
    await exhaust(pump, lambda item: into.append((item, round(clock.now() - LATER, 6))))


async def exhaust(items: AsyncIterator[int], into: Callable[[int], None]) -> None:
    async for item in items:
        into(item)


@in_each_home
async def test_items_leave_at_the_rate_in_their_order(store, clock):
    """Of a plain iterable and of an async one."""
    for key, plain in (("plain", True), ("async", False)):
        scene = Scene()
        clock.set(LATER)
        scene.shaper = AsyncShaper("10/second queue 3", store=store, on_error="raise")
        left: list[tuple[int, float]] = []
        async with scene.shaper.drain(range(8) if plain else scene.source(range(8)), key) as pump:
            taking = asyncio.ensure_future(take(pump, left, clock))
            for leaves in range(1, 9):
                await until(lambda leaves=leaves, left=left: len(left) == leaves)
                if leaves < 8:
                    await until(lambda leaves=leaves: pump.accepted > leaves)
                clock.advance(0.1)
            await taking
        assert left == [(item, round(item / 10, 6)) for item in range(8)]
        assert (pump.accepted, pump.delivered, pump.rest()) == (8, 8, [])


@scened()
async def test_the_source_is_held_back(scene):
    """It is read as far ahead as there is room, and the one more for which there is none yet."""
    pump = scene.shaper.drain(scene.source(count()))
    for delivered in range(1, 20):
        taking = asyncio.ensure_future(anext(pump))
        await let_run()
        scene.clock.advance(0.1)
        await taking
        await let_run()
        assert delivered < len(scene.taken) <= delivered + ROOM + 1
    await pump.stop()


@scened()
async def test_a_slow_consumer_is_waited_for(scene):
    """However much time goes by, the source is not read further than there is room; then no burst either."""
    pump = scene.shaper.drain(scene.source(count()))
    assert await anext(pump) == 0
    for _ in range(20):
        scene.clock.advance(1)
        await let_run()
        assert len(pump.rest()) <= ROOM + 1
    assert len(scene.taken) <= 1 + ROOM + 1
    assert [await anext(pump) for _ in range(ROOM)] == [1, 2, 3]
    await pump.stop()


@scened()
async def test_a_slow_source_is_waited_for(scene):
    """The task that takes the items sleeps until there is one."""
    more: asyncio.Queue[int | None] = asyncio.Queue()

    async def source() -> AsyncIterator[int]:
        while (item := await more.get()) is not None:
            yield item

    left: list[tuple[int, float]] = []
    taking = asyncio.ensure_future(take(scene.shaper.drain(source()), left, scene.clock))
    for item in (0, 1):
        await let_run()
        assert len(left) == item
        more.put_nowait(item)
        await let_run()
        scene.clock.advance(5)
    more.put_nowait(None)
    await taking
    assert left == [(0, 0.0), (1, 5.0)]


@scened("10/second queue 10000")
async def test_a_plain_source_lets_the_others_breathe(scene):
    """A long iterable for which there is room does not keep the event loop to itself."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(other())
    pump = scene.shaper.drain(range(10_000))
    assert await anext(pump) == 0
    await until(lambda: pump.accepted == 10_000)
    others.cancel()
    assert turns > 100
    await pump.stop()


@scened()
async def test_after_stop_what_was_accepted_still_leaves(scene):
    """The source is left where it is."""
    pump = scene.shaper.drain(scene.source(count()))
    assert await anext(pump) == 0
    await let_run()
    accepted = pump.accepted
    left: list[tuple[int, float]] = []
    await pump.stop()
    await scene.drive(take(pump, left, scene.clock))
    assert [item for item, _ in left] == list(range(1, accepted))
    assert pump.rest() == scene.taken[accepted:]
    assert pump.delivered == pump.accepted == accepted == ROOM


@in_each_home
async def test_who_leaves_early_finds_the_rest(store, clock):
    """Delivered and rest together are everything that was taken from the source, in order."""
    scene = Scene()
    shaper = AsyncShaper("10/second queue 3", store=store, on_error="raise")
    for turns in (0, 1, 3, 30, 300):
        scene.taken.clear()
        async with shaper.drain(scene.source(count()), f"k{turns}") as pump:
            got = [await anext(pump)]
            await let_run(turns)
        assert got + pump.rest() == scene.taken
        assert pump.delivered == 1 <= pump.accepted


@scened()
async def test_who_stops_before_the_first_item_reads_nothing(scene):
    """A pump that is stopped before its first item leaves the source untouched."""
    async with scene.shaper.drain(scene.source(count())) as pump:
        await pump.stop()
        assert [item async for item in pump] == []
    assert scene.taken == []


@scened()
async def test_an_error_of_the_source_comes_after_what_was_accepted(scene):
    """The pump is over after the error."""
    left: list[tuple[int, float]] = []
    pump = scene.shaper.drain(scene.source(range(5), OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        await scene.drive(take(pump, left, scene.clock))
    assert [item for item, _ in left] == [0, 1, 2, 3, 4]
    assert [item async for item in pump] == []


@scened()
async def test_who_is_cancelled_while_it_waits_loses_no_item(scene):
    """An item whose wait was cancelled is the next one to be given."""
    pump = scene.shaper.drain(scene.source(range(3)))
    assert await anext(pump) == 0
    for _ in range(3):
        taking = asyncio.ensure_future(anext(pump))
        await let_run()
        taking.cancel()
        await asyncio.wait([taking])
    scene.clock.advance(0.1)
    assert await anext(pump) == 1
    await pump.stop()
    assert pump.rest() == [2]


@scened()
async def test_tasks_that_share_a_pump_get_each_item_once(scene):
    """They take turns: no item is handed to two of them, and a task that is cancelled takes none with it."""
    left: list[tuple[int, float]] = []
    pump = scene.shaper.drain(scene.source(range(7)))
    gone = asyncio.ensure_future(exhaust(pump, left.append))
    await let_run()
    workers = [asyncio.ensure_future(take(pump, left, scene.clock)) for _ in range(3)]
    await let_run()
    gone.cancel()
    await scene.drive(asyncio.gather(*workers))
    assert left == [0, *((item, item / 10) for item in range(1, 7))]
    assert (pump.accepted, pump.delivered, pump.rest()) == (7, 7, [])
