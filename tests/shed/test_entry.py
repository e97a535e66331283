"""`Entry`: requests of an edge that need no permit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from headgate.permit import Outcome
from headgate.shed import LoadShedder, current_class
from headgate.testing import ManualClock


def idle(shedder: LoadShedder) -> LoadShedder:
    """Bring a shedder to where it does not measure: an estimator says so after its first request."""
    shedder.permit().release()
    return shedder


@pytest.fixture
def shedder() -> LoadShedder:
    """A shedder of two places that measures no request now."""
    return idle(LoadShedder(2, clock=ManualClock()))


def test_a_place_is_taken_and_given_back(shedder):
    """Places and permits are one number in flight; the class is seen in between."""
    entry = shedder.entries["critical"]
    place = entry.enter()
    assert place is not None
    assert (current_class(), shedder.stats().in_flight) == ("critical", 1)
    permit = shedder.permit()
    assert permit
    assert (entry.enter(), shedder.stats().in_flight) == (None, 2)
    entry.leave(place, served=True)
    assert (current_class(), shedder.stats().in_flight, shedder.stats().admitted) == (None, 1, 3)
    permit.release()


def test_a_request_that_goes_on_with_a_permit_is_counted_once(shedder):
    """Its place is given back as if it had not been there."""
    entry = shedder.entries["critical"]
    place = entry.enter()
    assert place is not None
    entry.leave(place, served=False)
    assert (shedder.stats().in_flight, shedder.stats().admitted) == (0, 1)


def test_a_request_behind_a_long_iteration_of_its_loop_takes_a_permit():
    """After 5 ms of one iteration an entry still admits; a microsecond later the request is looked at closely."""
    clock = ManualClock()
    entry = idle(LoadShedder(3, clock=clock)).entries["critical"]

    async def entered() -> list[bool]:
        found = []
        for later in (0, 5_000, 1):
            clock.us += later
            found.append(contextvars.copy_context().run(entry.enter) is not None)
        return found

    assert asyncio.run(entered()) == [True, True, False]


@pytest.mark.parametrize("change", ["observe", "off", "measured", "workers"])
def test_a_request_that_needs_more_takes_a_permit(change):
    """In other modes, with a worker shedder, and while the estimator measures, an entry admits no request."""
    clock = ManualClock()
    shedder = idle(LoadShedder(2, clock=clock, workers=["busy"] if change == "workers" else ()))
    if change == "measured":
        clock.advance(1)
    elif change != "workers":
        shedder.mode = change
    assert shedder.entries["critical"].enter() is None
    assert (shedder.stats().in_flight, current_class()) == (0, None)


def test_a_dip_is_not_for_critical_requests():
    """An entry of a critical class may use all places."""
    shedder = idle(LoadShedder(2, clock=ManualClock()))
    shedder.estimator.limit = 0
    refused = [contextvars.copy_context().run(shedder.entries[name].enter) is None for name in shedder.classes.order]
    assert refused == [False, False, True, True]


def test_a_place_that_is_free_goes_to_a_request_that_waits():
    """A thread that waits for a permit is woken by a request that leaves."""
    shedder, waited = LoadShedder(1), []
    entry = shedder.entries["critical"]
    while (place := entry.enter()) is None:  # the clock is real: the estimator may measure again
        idle(shedder)

    def wait() -> None:
        with shedder.permit(timeout=60):
            waited.append(shedder.stats().in_flight)

    thread = threading.Thread(target=wait)
    thread.start()
    while not shedder.stats().waiting:
        pass
    entry.leave(place, served=True)
    thread.join(60)
    assert (waited, shedder.stats().in_flight) == ([1], 0)


def test_a_request_may_end_in_another_context(shedder):
    """A framework may close a request elsewhere: the place is free, and the other context keeps its class."""
    entry = shedder.entries["critical"]
    place = contextvars.copy_context().run(entry.enter)
    assert place is not None
    with shedder.permit("sheddable"):
        entry.leave(place, served=True)
        assert (current_class(), shedder.stats().in_flight) == ("sheddable", 1)


def test_the_turn_of_a_loop_that_has_stopped_is_not_waited_for():
    """A loop that stops within a turn never ends it: code of the same thread is not late for that."""
    clock = ManualClock()
    shedder = idle(LoadShedder(2, clock=clock))
    shedder.estimator.idle_until = 1 << 62
    entry, taken = shedder.entries["sheddable"], []
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: taken.append(entry.enter()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    clock.advance(60)
    permit = shedder.permit("sheddable")
    assert permit
    entry.leave(taken[0], served=True)
    place = entry.enter()
    assert place is not None
    entry.leave(place, served=True)
    permit.release()
    assert (shedder.stats().in_flight, shedder.stats().admitted, shedder.stats().refused) == (0, 4, {})


class Hurried:
    """An estimator with one place; another thread gives the place back while a request is about to wait for it."""

    undipped, base, dips, idle_until = 1, 0.0, False, 1 << 62

    def __init__(self) -> None:
        self.reads = 0
        self.leaves: Callable[[], None] = lambda: None

    @property
    def limit(self) -> int:
        """The limit; at its last read the request knows that no place is free, and nobody knows that it waits."""
        self.reads += 1
        if self.reads == 5:
            self.leaves()
        return 1

    def begin(self, now: int, in_flight: int) -> int:
        return 0

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        pass

    def refuse(self, now: int) -> None:
        pass


def test_a_place_that_becomes_free_before_anybody_waits_is_not_lost():
    """Entries take no lock: a request that finds all places taken looks once more after it is known to wait."""
    hurried = Hurried()
    shedder = LoadShedder(hurried, clock=ManualClock())
    entry = shedder.entries["sheddable"]
    place = entry.enter()
    assert place is not None
    hurried.leaves = lambda: entry.leave(place, served=True)
    with shedder.permit("sheddable", timeout=60, at_once=True) as permit:
        assert (hurried.reads, bool(permit), shedder.stats().waiting) == (6, True, 0)
    assert (shedder.stats().in_flight, shedder.stats().admitted) == (0, 2)
    assert not shedder.stats().refused
