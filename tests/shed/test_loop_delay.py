"""The queue that only the event loop has: when a request sat in it too long."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from headgate.shed import LoadShedder
from headgate.shed.loop_delay import LoopDelay
from headgate.testing import ManualClock

CLASSES = ("sheddable", "sheddable_plus", "critical", "critical_plus")


class Loop:
    """An event loop whose requests hold it for as long as a ledger says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.shedder = LoadShedder(1000, clock=self.clock)

    async def turn(self, *held: float, request_class: str = "sheddable_plus") -> str:
        """Start requests that are all ready, with the milliseconds that each computes; return `.` or `x` of each."""
        told = ""
        for milliseconds in held:
            permit = self.shedder.permit(request_class)
            told += "." if permit else "x"
            if permit:
                self.clock.advance(milliseconds / 1_000)
                permit.release()
        await self.rest(0)
        return told

    async def rest(self, milliseconds: float) -> None:
        """Let the turn end, and the loop have no requests for a while."""
        for _ in range(3):
            await asyncio.sleep(0)
        self.clock.advance(milliseconds / 1_000 + 0.001)

    async def fall_behind(self) -> None:
        """Let requests that compute for 5 ms come until the loop has been behind for 100 ms."""
        for _ in range(11):
            await self.turn(5, 5, 5)


def test_a_loop_that_has_been_behind_for_100_ms_refuses():
    """Ten requests of 10 ms in each turn: the first turns are served, then the third and later ones are refused."""

    async def main():
        loop = Loop()
        assert await loop.turn(*[10] * 10) == ".........."
        assert await loop.turn(*[10] * 10) == "..xxxxxxxx"
        assert await loop.turn(*[10] * 10) == "..xxxxxxxx"
        assert dict(loop.shedder.stats().refused) == {("sheddable_plus", "loop"): 16}

    asyncio.run(main())


def test_a_thousand_requests_at_once_are_refused_within_their_turn():
    """They are one turn of the loop; it is behind from 5 ms on, and refuses 100 ms later."""

    async def main():
        loop = Loop()
        told = await loop.turn(*[5] * 1000)
        assert told == "." * 22 + "x" * 978

    asyncio.run(main())


def test_each_class_has_its_bound():
    """A request waits behind one other of 5 ms, or two, or four; the highest class is never refused for it."""

    async def main():
        found = {}
        for name in CLASSES:
            loop = Loop()
            await loop.fall_behind()
            found[name] = await loop.turn(*[5.1] * 6, request_class=name)
        assert found == {
            "sheddable": ".xxxxx",
            "sheddable_plus": "..xxxx",
            "critical": "....xx",
            "critical_plus": "......",
        }

    asyncio.run(main())


def test_long_requests_are_counted_as_well():
    """Where a request holds the loop longer than the bound, one, two or four may still be before it, by class."""

    async def main():
        found = {}
        for name in CLASSES:
            loop = Loop()
            await loop.fall_behind()
            found[name] = await loop.turn(*[50] * 6, request_class=name)
        assert [found[name] for name in CLASSES] == [".xxxxx", "..xxxx", "....xx", "......"]

    asyncio.run(main())


def test_many_short_requests_are_no_overload():
    """A loop of 64 connections takes 10 ms for each turn, and serves all of them, again and again."""

    async def main():
        loop = Loop()
        for _ in range(100):
            assert await loop.turn(*[0.15] * 64) == "." * 64

    asyncio.run(main())


@pytest.mark.parametrize(
    ("milliseconds", "served"), [(2, 6), (1, 11), (0.5, 41), (0.25, 161), (0.1, 1001), (0.05, 4001), (0.04, 5001)]
)
def test_the_bound_is_longer_where_requests_are_short(milliseconds, served):
    """In the second class 10 ms for requests of 1 ms and more, 20 ms for 0.5, 100 ms for 0.1; 200 ms at most."""

    async def main():
        loop = Loop()
        for _ in range(2):
            told = await loop.turn(*[milliseconds] * 9000)
        assert told.index("x") == served
        assert "." not in told[served:]

    asyncio.run(main())


def test_a_queue_that_empties_is_no_overload():
    """A turn without a late request, or a rest of the loop, begins the 100 ms anew."""

    async def main():
        loop = Loop()
        for _ in range(20):
            assert await loop.turn(*[10] * 5) == "....."
            assert await loop.turn(1, 1) == ".."
        for _ in range(20):
            assert await loop.turn(*[10] * 5) == "....."
            await loop.rest(150)

    asyncio.run(main())


def test_time_between_turns_is_not_a_delay():
    """A request in a later turn of the loop does not count the time of the turns before."""

    async def main():
        loop = Loop()
        await loop.fall_behind()
        for _ in range(3):
            assert await loop.turn(1000, request_class="sheddable") == "."

    asyncio.run(main())


def test_refused_requests_do_not_make_the_others_look_short():
    """The mean is over requests that are served: refusals are quick, and there are many."""

    async def main():
        loop = Loop()
        await loop.fall_behind()
        told = ""
        for _ in range(200):
            permit = loop.shedder.permit()
            told += "." if permit else "x"
            loop.clock.advance(0.0051 if permit.release() else 0.0001)
        assert told == ".." + "x" * 198

    asyncio.run(main())


def test_observing_counts_requests_that_sat_too_long():
    """All are served, and those that `enforce` would refuse are counted."""

    async def main():
        loop = Loop()
        loop.shedder.mode = "observe"
        await loop.fall_behind()
        assert await loop.turn(*[5.1] * 4) == "...."
        assert loop.shedder.stats().refused == {("sheddable_plus", "loop"): 2}

    asyncio.run(main())


def test_a_closed_loop_is_forgotten():
    """A process that makes many loops, one after the other, keeps one of them at most."""
    delays, seen = LoopDelay(), []

    async def main():
        seen.append(weakref.ref(asyncio.get_running_loop()))
        assert delays.of_request(len(seen) * 10_000) == 0

    for _ in range(5):
        asyncio.run(main())
    gc.collect()
    assert [each() is not None for each in seen] == [False] * 4 + [True]
