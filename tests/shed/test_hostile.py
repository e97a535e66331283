"""Callers that do everything at once, leave, raise, forget; and modes that change under them."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings

import pytest

from headgate import Overloaded
from headgate.shed import LoadShedder, current_class
from headgate.testing import ManualClock

pytestmark = pytest.mark.engineless

LIMIT = 10


class Crowd:
    """A thousand callers of one shedder, and a witness that counts those inside."""

    def __init__(self, seed: int, mode: str = "enforce") -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.shedder = LoadShedder(LIMIT, clock=self.clock, mode=mode)
        self.inside = self.most = self.done = self.refused = self.cancelled = 0

    async def caller(self) -> None:
        name = self.chance.choice(self.shedder.classes.order)
        patience = self.chance.choice([None, 0.0, 0.5, 60.0])
        try:
            async with self.shedder.permit(name, tenant=self.chance.choice("abc"), timeout=patience):
                self.inside += 1
                self.most = max(self.most, self.inside)
                assert current_class() == name
                try:
                    for _ in range(self.chance.randrange(4)):
                        await asyncio.sleep(0)
                        self.look()
                    if self.chance.random() < 0.2:
                        raise self.chance.choice([LookupError, TimeoutError])
                finally:
                    self.inside -= 1
                    self.done += 1
        except Overloaded:
            self.refused += 1
        except (LookupError, TimeoutError):
            pass

    def look(self) -> None:
        """The numbers are true at every moment: those inside are in flight, with those that are about to go on."""
        stats = self.shedder.stats()
        assert self.inside <= stats.in_flight
        assert stats.waiting <= LIMIT
        assert sum(stats.refused.values()) >= self.refused
        if self.shedder.mode == "enforce":
            self.clock.advance(0.001)

    async def come(self, *modes: str) -> None:
        """Let a thousand callers come, of whom some are cancelled, while the mode changes again and again."""
        tasks = [asyncio.create_task(self.caller()) for _ in range(1000)]
        for number in range(200):
            await asyncio.sleep(0)
            self.look()
            if number % 5 == 0:
                self.chance.choice(tasks).cancel()
            if modes:
                self.shedder.mode = self.chance.choice(modes)
        self.clock.advance(61)  # no caller waits longer
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        self.cancelled = sum(isinstance(each, asyncio.CancelledError) for each in ended)
        assert [each for each in ended if each is not None and not isinstance(each, asyncio.CancelledError)] == []


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_callers_at_once(seed):
    """The callers inside are never more than the limit; each is served, refused or cancelled; none is left behind."""
    crowd = Crowd(seed)
    asyncio.run(crowd.come())
    stats = crowd.shedder.stats()
    assert (stats.in_flight, stats.waiting, crowd.most) == (0, 0, LIMIT)
    assert crowd.done + crowd.refused + crowd.cancelled >= 1000
    assert stats.admitted >= crowd.done


@pytest.mark.parametrize("seed", range(5))
def test_modes_that_change_under_a_crowd(seed):
    """The permits of every mode end in every other: nothing is in flight afterwards, and no caller hangs."""
    crowd = Crowd(seed)
    asyncio.run(crowd.come("enforce", "observe", "off"))
    crowd.shedder.mode = "enforce"
    stats = crowd.shedder.stats()
    assert (stats.in_flight, stats.waiting) == (0, 0)
    permits = [crowd.shedder.permit() for _ in range(LIMIT + 1)]
    assert [bool(each) for each in permits] == [True] * LIMIT + [False]


def test_a_forgotten_await_holds_nothing():
    """A block that is never entered, and one whose coroutine is thrown away, take no place."""

    async def main() -> None:
        shedder = LoadShedder(1)
        forgotten = shedder.permit(timeout=60).__aenter__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del forgotten
            gc.collect()
        shedder.permit(timeout=60)
        assert (shedder.stats().in_flight, shedder.stats().waiting) == (0, 0)
        async with shedder.permit(timeout=0):
            assert shedder.stats().in_flight == 1

    asyncio.run(main())
