"""Mapping: a function called with each item of a source, at the constant rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count, islice

import pytest

from headgate.testing import ManualClock
from tests.shaper.test_pumps import Source, steady, take_all
from tests.shaper.test_pumps_async import ROOM, exhaust, scened
from tests.support.homes import LATER, let_run


def test_it_calls_one_after_the_other(clock):
    """At the rate, in order, and only as far as somebody takes the results."""
    source = Source(range(100))
    called = []

    def double(item: int) -> tuple[int, float]:
        called.append(item)
        return 2 * item, round(clock.now() - LATER, 6)

    results = steady(clock).map(double, source)
    assert called == []
    assert list(islice(results, 4)) == [(0, 0.0), (2, 0.1), (4, 0.2), (6, 0.3)]
    results.close()
    assert called == source.taken == [0, 1, 2, 3]


@pytest.mark.parametrize("broken", [1, 4])
def test_an_error_is_who_maps_concern(broken):
    """Of the function or of the source; what was before it has been handed out."""

    def fragile(item: int) -> int:
        if item == broken:
            raise ZeroDivisionError
        return item

    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        take_all(steady(ManualClock(LATER)).map(fragile, range(9)), seen.append)
    assert seen == list(range(broken))
    with pytest.raises(OSError, match="gone"):
        take_all(steady(ManualClock(LATER)).map(str, Source(range(3), OSError("gone"))), lambda _: None)


@scened()
async def test_it_starts_at_the_rate_and_answers_in_order(scene):
    """Calls overlap; one that takes long does not hold back the beginning of the next ones."""
    begun: list[tuple[int, float]] = []
    gates = [asyncio.Event() for _ in range(6)]
    results: list[int] = []

    async def work(item: int) -> int:
        begun.append((item, round(scene.clock.now() - LATER, 6)))
        await gates[item].wait()
        return 10 * item

    collecting = asyncio.ensure_future(exhaust(scene.shaper.map(work, range(6)), results.append))
    for _ in range(3):
        await let_run()
        scene.clock.advance(0.1)
    await let_run()
    assert begun == [(0, 0.0), (1, 0.1), (2, 0.2)] and results == []
    gates[1].set()
    await let_run()
    assert results == []
    for gate in gates:
        gate.set()
    await scene.drive(collecting)
    assert results == [0, 10, 20, 30, 40, 50]


@scened()
async def test_a_result_is_not_held_back_by_a_source_that_pauses(scene):
    """A result that is done is handed out, also while the next item is not there yet."""
    more = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 0
        await more.wait()
        yield 1

    results: list[int] = []
    mapping = asyncio.ensure_future(exhaust(scene.shaper.map(doubled, source()), results.append))
    await let_run()
    scene.clock.advance(1)
    await let_run()
    assert results == [0]
    more.set()
    await mapping
    assert results == [0, 2]


async def doubled(item: int) -> int:
    return 2 * item


@scened()
async def test_leaving_early_cancels_what_runs(scene):
    """An iterator that is closed cancels the calls that are under way."""
    ends: list[str] = []

    async def work(item: int) -> int:
        try:
            if item:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append(f"{item} cancelled")
            raise
        return item

    results = scene.shaper.map(work, count())
    first = asyncio.ensure_future(anext(results))
    await scene.drive(first)
    waiting = asyncio.ensure_future(anext(results))
    while scene.clock.now() < LATER + 0.35:
        await let_run()
        scene.clock.advance(0.1)
    await let_run()
    assert ends == []
    waiting.cancel()
    await asyncio.wait([waiting])
    await results.aclose()
    assert (await first, ends) == (0, ["1 cancelled", "2 cancelled", "3 cancelled"])


@scened()
async def test_an_error_is_who_maps_concern_awaited(scene):
    """Results before the error have been handed out; calls that run beside it are cancelled."""
    results: list[int] = []

    async def fragile(item: int) -> int:
        if item == 2:
            raise ZeroDivisionError
        return item

    with pytest.raises(ZeroDivisionError):
        await scene.drive(exhaust(scene.shaper.map(fragile, count()), results.append))
    assert results == [0, 1]
    with pytest.raises(OSError, match="gone"):
        await scene.drive(exhaust(scene.shaper.map(fragile, scene.source(range(2), OSError("gone"))), results.append))


@scened()
async def test_no_more_run_at_once_than_there_is_room_for(scene):
    """However long they take; the source waits with them, and nobody is skipped."""
    done, running = asyncio.Event(), []
    results: list[int] = []

    async def work(item: int) -> int:
        running.append(item)
        await done.wait()
        return item

    mapping = asyncio.ensure_future(exhaust(scene.shaper.map(work, scene.source(range(9))), results.append))
    for _ in range(20):
        await let_run()
        scene.clock.advance(0.1)
    assert (running, results) == (list(range(ROOM)), [])
    assert len(scene.taken) <= 2 * ROOM + 1
    done.set()
    await scene.drive(mapping)
    assert running == results == list(range(9))
