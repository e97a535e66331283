"""Pumps in threads: a source's items at the constant rate, held back, none of them lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest

from headgate import AsyncShaper, Shaper
from headgate.testing import ManualClock
from tests.support.homes import LATER
from tests.support.inside import shaper_of


class Source:
    """Counts what was taken from it, and may end with an error."""

    def __init__(self, items: Iterable[int], error: Exception | None = None) -> None:
        self.taken: list[int] = []
        self._items, self._error = items, error

    def __iter__(self) -> Iterator[int]:
        for item in self._items:
            self.taken.append(item)
            yield item
        if self._error is not None:
            raise self._error


def steady(clock: ManualClock, text: str = "10/second queue 3") -> Shaper:
    return Shaper(text, clock=clock)


def test_items_leave_at_the_rate_in_their_order(home, clock):
    """Whatever comes out is counted, and when it is over it is over."""
    pump = Shaper("7/second queue 3", store=home.store(clock), on_error="raise").drain("abcde")
    at = [(item, clock.us - round(LATER * 1e6)) for item in pump]
    assert at == [("a", 0), ("b", 142_858), ("c", 285_715), ("d", 428_572), ("e", 571_429)]
    assert (pump.accepted, pump.delivered, pump.rest()) == (5, 5, [])
    assert list(pump) == []


def test_the_source_is_asked_when_there_is_room():
    """Back-pressure: never further ahead than what is about to leave."""
    source = Source(count())
    pump = steady(ManualClock(LATER)).drain(source)
    for delivered in range(1, 30):
        next(pump)
        assert len(source.taken) == delivered


def test_others_in_the_queue_are_waited_for(home, clock):
    """The queue is full of somebody else's: the pump holds its item until there is room, and loses nothing."""
    queue = Shaper("10/second queue 3", store=home.store(clock), on_error="raise")
    for _ in range(3):
        queue.enter("jobs")
    with queue.drain("ab", "jobs") as pump:
        assert [(item, round(clock.now() - LATER, 6)) for item in pump] == [("a", 0.3), ("b", 0.4)]


def test_pumps_of_one_key_share_the_rate(clock):
    """Two of them, in turn: together no faster than one."""
    queue = steady(clock)
    one, other = queue.drain("abc"), queue.drain("xyz")
    assert [(next(each), round(clock.now() - LATER, 6)) for each in (one, other) * 3] == [
        ("a", 0.0), ("x", 0.1), ("b", 0.2), ("y", 0.3), ("c", 0.4), ("z", 0.5),
    ]  # fmt: skip
    assert [*queue.drain("a", "a key"), *queue.drain("b", "another")] == ["a", "b"]
    assert clock.now() == LATER + 0.5


def test_who_takes_slowly_gets_no_burst_afterwards(clock):
    """The consumer sets the pace where it is slower than the rate."""
    taken = []
    for _ in steady(clock).drain(range(5)):
        taken.append(round(clock.now() - LATER, 6))
        clock.advance(1 if len(taken) < 3 else 0)
    assert taken == [0.0, 1.0, 2.0, 2.1, 2.2]


def test_stop_takes_nothing_more():
    """From the source, that is: and leaving the block is a stop."""
    source = Source(range(10))
    with steady(ManualClock(LATER)).drain(source) as pump:
        assert list(islice(pump, 3)) == [0, 1, 2]
        pump.stop()
        assert list(pump) == []
    assert (source.taken, pump.rest()) == ([0, 1, 2], [])


def test_an_error_of_the_source_comes_after_what_was_accepted():
    """The pump is over after the error."""
    taken: list[int] = []
    pump = steady(ManualClock(LATER)).drain(Source(range(5), OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        take_all(pump, taken.append)
    assert taken == [0, 1, 2, 3, 4]
    assert list(pump) == []


def test_an_interrupted_item_is_not_lost():
    """Ctrl-C while it is waited for, or while there is no room for it: it is the next to leave, or part of the rest."""

    class Shaken(ManualClock):
        shakes = 0

        def sleep_until(self, at_us: int) -> None:
            if self.shakes:
                self.shakes -= 1
                raise KeyboardInterrupt
            super().sleep_until(at_us)

    clock = Shaken(LATER)
    pump = steady(clock).drain(range(5))
    assert next(pump) == 0
    clock.shakes = 1
    with pytest.raises(KeyboardInterrupt):
        next(pump)
    assert pump.rest() == [1]
    assert [next(pump), next(pump)] == [1, 2]
    for _ in range(3):
        shaper_of(pump).enter("everything")
    clock.shakes = 1
    with pytest.raises(KeyboardInterrupt):
        next(pump)
    assert pump.rest() == [3]
    assert list(pump) == [3, 4]


def test_who_stops_before_the_first_item_reads_nothing():
    """A pump that is stopped first does not read even the first item."""
    source = Source(range(5))
    with steady(ManualClock(LATER)).drain(source) as pump:
        pump.stop()
        assert list(pump) == []
    assert (source.taken, pump.accepted, pump.rest()) == ([], 0, [])


@pytest.mark.parametrize("kind", [Shaper, AsyncShaper])
def test_a_pump_only_holds_its_source_back(kind):
    """It was once told what to do with items for which there is no room; the error says what a pump is told."""
    told = f"{kind.__name__}.drain() has no argument 'when_full'; use one of source, key"
    with pytest.raises(TypeError, match=re.escape(told)):
        kind("10/second", clock=ManualClock(LATER)).drain([], when_full="drop")


def take_all(results: Iterable[int], take: Callable[[int], None]) -> None:
    for each in results:
        take(each)


class MeetingClock(ManualClock):
    """Lets a thread that would wait meet another one first, if another one comes."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self._met = threading.Event()
        self._came = count()

    def sleep_until(self, at_us: int) -> None:
        """Wait a moment for another thread, once."""
        if next(self._came):
            self._met.set()
        self._met.wait(0.1)
        super().sleep_until(at_us)


def test_threads_that_share_a_pump_get_each_item_once():
    """No item is handed to two of them, and none is lost between them."""
    pump = Shaper("10/second queue 3", clock=MeetingClock(LATER)).drain(range(20))
    with ThreadPoolExecutor(2) as workers:
        taken: list[list[int]] = list(workers.map(list, [pump, pump]))
    assert sorted(item for some in taken for item in some) == list(range(20))
    assert (pump.accepted, pump.delivered, pump.rest()) == (20, 20, [])
