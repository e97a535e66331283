"""Waiting in threads: no longer than needed, first come, first served, and a caller that gives up leaves nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from typing import Any

import pytest

from headgate import Call, Decision, InvalidCall, Limiter, RateLimited
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM
from tests.support import side_by_side
from tests.support.homes import LATER, HandMoved, Interrupting, eventually, in_line, nobody_waits
from tests.support.inside import queue_of
from tests.support.processes import CONTEXT

LINES = ("10/second by fixed-window", "10/second by sliding-log", "10/second by sliding-window/5", "10/second block 2s")
"""Limits that cannot promise a time: their callers stand in line."""


class Crowd:
    """Threads that acquire one key, each started when the one before it waits."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.admitted: list[str] = []
        """In the order of the admissions; callers in the queue are told one at a time."""
        self.done: list[str] = []
        self._threads: list[threading.Thread] = []
        self._reserve = limiter._reserve
        limiter._reserve = self._seen  # type: ignore[assignment]

    def _seen(self, *question: Any) -> Decision:
        decision = self._reserve(*question)
        if decision:
            self.admitted.append(threading.current_thread().name)
        return decision

    def add(self, name: str, cost: int = 1) -> None:
        ahead = in_line(self.limiter)
        self._threads.append(threading.Thread(target=self._wait, args=(name, cost), name=name, daemon=True))
        self._threads[-1].start()
        eventually(lambda: in_line(self.limiter) == ahead + 1)

    def _wait(self, name: str, cost: int) -> None:
        assert self.limiter.acquire("k", cost)
        self.done.append(name)

    def all_home(self) -> bool:
        for thread in self._threads:
            thread.join(10)
        return not any(thread.is_alive() for thread in self._threads)


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_it_takes_exactly_as_long_as_it_must(home, algorithm, clock):
    """Whatever the algorithm promised as a retry is how long acquire takes, to the microsecond."""
    limiter = home.limiter(f"10/second by {algorithm}", clock=clock)
    for cost in (1, 3, 10):
        limiter.take_up_to("k", 10)
        start, promised = clock.us, limiter.peek("k", cost).retry_us
        assert promised > 0
        assert limiter.acquire("k", cost).granted == cost
        assert clock.us - start == promised


def test_a_bucket_lets_its_burst_go_and_then_one_after_the_other(home, clock):
    """A decision that was waited for tells how long the wait was."""
    limiter = home.limiter("7/second burst 3", clock=clock)
    left, took = [], []
    for _ in range(6):
        start = clock.us
        decision = limiter.acquire("k")
        left.append(clock.us - round(LATER * 1e6))
        took.append(decision.retry_after)
        assert clock.us - start == decision.retry_us
    assert left == [0, 0, 0, 142_858, 285_715, 428_572]
    assert took == [0.0, 0.0, 0.0, 0.142858, 0.142857, 0.142857]


def test_it_costs_what_a_hit_costs(home, clock):
    """Where nothing has to be waited for, acquire is a hit: the same books after it."""
    one, other = home.limiter("10/minute", clock=clock), home.limiter("10/minute", clock=clock, namespace="other")
    assert one.acquire("k", 4).verdicts == other.hit("k", 4).verdicts
    assert one.peek("k", 0).verdicts == other.peek("k", 0).verdicts


@pytest.mark.parametrize("text", ["10/second", *LINES])
def test_a_wait_longer_than_the_timeout_is_refused_at_once(home, text, clock):
    """One microsecond too long: no time goes by, nothing is charged, and the retry is told. Just as long: admitted."""
    limiter = home.limiter(text, clock=clock)
    limiter.hit("k", 10)
    limiter.hit("k", 3)
    before, start = limiter.peek("k", 0).verdicts, clock.us
    wait = limiter.peek("k", 3).retry_us
    refused = limiter.acquire("k", 3, timeout=(wait - 1) / 1e6)
    assert (bool(refused), refused.granted, refused.retry_us, clock.us) == (False, 0, wait, start)
    assert limiter.peek("k", 0).verdicts == before
    assert limiter.acquire("k", 3, timeout=wait / 1e6)
    assert clock.us == start + wait


@pytest.mark.parametrize("text", ["10/second", *LINES])
def test_what_can_never_fit_is_refused_for_ever_at_once(home, text, clock):
    """Above the burst no waiting helps, with a timeout or without."""
    limiter = home.limiter(text, clock=clock)
    for timeout in (None, 0, 1e6):
        refused = limiter.acquire("k", 11, timeout)
        assert (refused.never, refused.retry_after, clock.now()) == (True, math.inf, LATER)
    assert limiter.peek("k", 10)


def test_several_limits_wait_for_the_slowest(home, clock):
    """A bucket and a window: the wait is the longer one, and both are charged once."""
    limiter = home.limiter("10/second as fast; 12/minute by fixed-window as slow", clock=clock)
    assert limiter.acquire("k", {"fast": 10, "slow": 12})
    assert limiter.acquire("k", {"fast": 5, "slow": 1})
    assert clock.now() == LATER + 60
    assert [verdict.remaining for verdict in limiter.peek("k", 0).verdicts] == [5, 11]


@pytest.mark.parametrize("text", ["10/minute", "10/minute by fixed-window"])
def test_a_plan_waits_by_its_own_numbers(home, text, clock):
    """`limit=` chooses the numbers of one call, also of one that waits."""
    limiter = home.limiter(text, clock=clock)
    plan = text.replace("10", "2")
    assert limiter.acquire("k", 2, limit=plan)
    wait = limiter.peek("k", 2, limit=plan).retry_after
    assert wait >= 30
    assert limiter.acquire("k", 2, limit=plan)
    assert clock.now() == LATER + wait
    assert limiter.acquire("k", 3, limit=plan).never


def test_more_than_an_hour_is_waited_for_too(home, clock):
    """A request that cannot be promised yet is asked again when it can be, and the wait is still exact."""
    limiter = home.limiter("2/3 hours burst 2", clock=clock)
    limiter.hit("k", 2)
    assert limiter.acquire("k", 2)
    assert clock.now() == LATER + 3 * 3600
    assert not limiter.peek("k").allowed


def test_a_permit_of_a_rate_waits_and_raises_where_it_is_refused(home, clock):
    """The caller waits, hands over the decision, and what was spent stays spent."""
    limiter = home.limiter("2/second", clock=clock)
    with limiter.permit("k", 2, timeout=None) as permit:
        assert (permit.decision.remaining, clock.now()) == (0, LATER)
    with limiter.permit("k", timeout=None) as permit:
        assert (permit.decision.retry_after, clock.now()) == (0.5, LATER + 0.5)
    with pytest.raises(RateLimited, match="retry after 0.5 s"), limiter.permit("k", timeout=0.4):
        pytest.fail("the body must not run")
    with pytest.raises(RateLimited, match="never"), limiter.permit("k", 3, timeout=None):
        pytest.fail("the body must not run")
    with pytest.raises(ConnectionError), limiter.permit("k", timeout=None):
        raise ConnectionError
    assert limiter.peek("k", 0).reset_after == 1.0


@pytest.mark.parametrize("text", ["10/second", *LINES])
def test_an_interrupted_sleep_gives_back(home, text):
    """Ctrl-C while it waits: nothing stays charged, and nobody stands in line."""
    clock = Interrupting(LATER)
    limiter = home.limiter(text, clock=clock)
    limiter.hit("k", 10)
    limiter.hit("k")
    before = limiter.peek("k", 0).verdicts
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire("k", 3)
    assert limiter.peek("k", 0).verdicts == before
    assert nobody_waits(limiter)


def test_nobody_waits_where_nobody_may(clock):
    """`max_waiting=0` makes acquire a hit."""
    for text in ("10/second", *LINES):
        limiter = Limiter(text, clock=clock, max_waiting=0)
        assert limiter.acquire("k", 10)
        start, refused = clock.us, limiter.acquire("k")
        assert (bool(refused), clock.us) == (False, start)
        assert (bool(limiter.acquire_all(Call(text, "k"))), clock.us) == (False, start)


@pytest.mark.parametrize("wrong", [-1, -0.001, math.nan, True, "1", [1]])
def test_a_timeout_that_is_none_is_refused(wrong):
    """A number of seconds from 0, or None."""
    limiter = Limiter("1/second", clock=ManualClock(LATER))
    for ask in (limiter.acquire, lambda key, timeout: limiter.reserve(key, max_wait=timeout)):
        with pytest.raises(InvalidCall, match="number of seconds from 0"):
            ask("k", timeout=wrong)
    assert limiter.peek("k")


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None, "5"])
def test_a_bound_that_is_none_is_refused(wrong):
    """How many may wait is a whole number."""
    with pytest.raises(InvalidCall, match="max_waiting must be a whole number of callers"):
        Limiter("1/second", max_waiting=wrong)


def test_bad_keys_and_costs_wait_for_nothing(home):
    """A call that is wrong raises at once, and nobody waits or is charged."""
    limiter = home.limiter("1/second", clock=ManualClock(LATER))
    for key, cost in (("", 1), (5, 1), (["k"], 1), ("k", -1), ("k", 1.5), ("k", {"no": 1})):
        with pytest.raises(InvalidCall):
            limiter.acquire(key, cost)
        with pytest.raises(InvalidCall):
            limiter.acquire(key, cost, 5)
    assert (in_line(limiter), limiter.peek("k").remaining) == (0, 1)


def test_threads_leave_a_bucket_in_the_order_they_came(home):
    """Each is charged when it comes, and one goes at each instant; the large one in the middle is not passed."""
    clock = HandMoved()
    crowd = Crowd(home.limiter("10/second burst 4", clock=clock))
    crowd.limiter.hit("k", 4)
    for name, cost in (("a", 1), ("b", 4), ("c", 1), ("d", 1)):
        crowd.add(name, cost)
    for steps, gone in ((1, "a"), (3, "a"), (1, "ab"), (1, "abc"), (1, "abcd")):
        eventually(lambda: clock.asleep == in_line(crowd.limiter))
        clock.advance(steps * 0.1)
        eventually(lambda gone=gone: "".join(crowd.done) == gone)
    assert crowd.all_home()
    assert crowd.limiter.peek("k", 0).reset_after == 0.4


@pytest.mark.parametrize("text", LINES[:3])
def test_threads_leave_a_line_in_the_order_they_came(home, text):
    """Only the head asks; a large cost at the head is served before the small ones behind it."""
    clock = HandMoved()
    crowd = Crowd(home.limiter(text, clock=clock))
    crowd.limiter.hit("k", 10)
    for name, cost in (("a", 10), ("b", 1), ("c", 9), ("d", 1), ("e", 10)):
        crowd.add(name, cost)
    while len(crowd.done) < 5:
        eventually(lambda: clock.asleep == 1 or in_line(crowd.limiter) == 0)
        clock.advance(0.1)
    assert crowd.admitted == ["a", "b", "c", "d", "e"]
    assert crowd.all_home()
    assert nobody_waits(crowd.limiter)


def test_who_is_counted_among_those_who_wait_has_its_place():
    """In one step: the next caller queues behind, even if the thread before it is held up at that moment."""
    clock = HandMoved()
    crowd = Crowd(Limiter("10/second by fixed-window", clock=clock))
    line, seen = queue_of(crowd.limiter), []
    look = lambda: seen.append((line.waiting, len(line.by_key.get("k", ()))))  # noqa: E731
    line._lock = Witness(line._lock, look)  # type: ignore[assignment]
    crowd.limiter.hit("k", 10)
    for name in "abc":
        crowd.add(name)
    eventually(lambda: clock.asleep == 1)
    clock.advance(1)
    assert crowd.all_home()
    assert seen and all(waiting == places for waiting, places in seen)


class Witness:
    """A lock that notes what its next holder sees."""

    def __init__(self, lock: Any, look: Callable[[], None]) -> None:
        self._lock, self._look = lock, look

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._look()
        self._lock.release()


def test_a_thread_whose_turn_does_not_come_in_time_leaves_the_line():
    """It is refused when its time is up, charges nothing, and those behind it move up."""
    clock = HandMoved()
    crowd = Crowd(Limiter("10/100ms by fixed-window", clock=clock))
    crowd.limiter.hit("k", 10)
    crowd.add("a", 10)
    refused = crowd.limiter.acquire("k", 10, timeout=0.12)
    assert (bool(refused), refused.granted, in_line(crowd.limiter)) == (False, 0, 1)
    crowd.add("b", 4)
    eventually(lambda: clock.asleep == 1)
    clock.advance(0.1)
    eventually(lambda: crowd.done == ["a"] and clock.asleep == 1)
    clock.advance(0.1)
    assert crowd.all_home()
    assert crowd.limiter.peek("k", 0).remaining == 6


def test_threads_never_go_early_by_the_real_clock(home):
    """Eight threads, ten turns each: the n-th to go goes n milliseconds after the first at the earliest."""
    limiter = home.limiter("1000/second burst 1")
    limiter.peek("k")
    clock, gone = limiter.store.clock, []
    start = clock.now_us()

    def take_turns() -> None:
        for _ in range(10):
            assert limiter.acquire("k")
            gone.append(clock.now_us() - start)

    with side_by_side([take_turns] * 8):
        pass
    assert len(gone) == 80
    assert all(at >= 1_000 * place for place, at in enumerate(sorted(gone)))


def acquire_there(url: str, count: int) -> list[int]:
    """In a process of its own: how long each took, all asked at one instant."""
    clock = ManualClock(LATER)
    took = []
    with Limiter("1000/second burst 10", store=url, clock=clock, on_error="raise") as limiter:
        for _ in range(count):
            clock.set(LATER)
            took.append(limiter.acquire("k").retry_us)
    return took


@pytest.mark.parametrize("home", ["shared", "redis"], indirect=True)
def test_processes_wait_in_one_line(home):
    """Every place is given once, in the order of asking, whichever process asks."""
    with (
        ProcessPoolExecutor(1, mp_context=CONTEXT) as one,
        ProcessPoolExecutor(1, mp_context=CONTEXT) as other,
    ):
        turns = [pool.submit(acquire_there, home.url, 5).result() for pool in (one, other) * 4]
        assert list(chain(*turns)) == [0] * 10 + [1000 * n for n in range(1, 31)]
        crowd = [pool.submit(acquire_there, home.url, 100) for pool in (one, other)]
        for each in crowd:
            assert each.result() == sorted(each.result())
        assert sorted(crowd[0].result() + crowd[1].result()) == [1000 * n for n in range(31, 231)]
