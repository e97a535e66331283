"""Tasks of a queue under a limit: run now, wait a little, or be handed back."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from headgate import AsyncLimiter, InvalidCall, Limiter, RateLimited
from headgate.tasks import Throttle, settle
from headgate.tasks.throttle import LONGEST
from headgate.testing import ManualClock, disabled, frozen, reset_all

pytestmark = pytest.mark.engineless


class Ran(NamedTuple):
    """A task that ran."""

    at: float
    number: int


class Queue:
    """A queue that brings every task back at the instant it asked for, or later, on a clock of its own."""

    def __init__(self, limits: str, wait: float = 0.0) -> None:
        self.clock = ManualClock()
        self.limiter = Limiter(limits, clock=self.clock)
        self.throttle = Throttle(self.limiter, "k", wait=wait)
        self.waiting: list[tuple[float, int, bool]] = []
        self.asked: Counter[int] = Counter()

    def send(self, count: int, at: float = 0.0) -> None:
        first = len(self.waiting)
        for number in range(first, first + count):
            heapq.heappush(self.waiting, (at, number, False))

    def work(self, until: float = float("inf"), late: Callable[[int], float] = lambda number: 0.0) -> list[Ran]:
        """Run every task, one after the other; return which ones ran, and when."""
        ran = []
        while self.waiting and self.waiting[0][0] <= until:
            at, number, came_back = heapq.heappop(self.waiting)
            self.clock.set(max(at, self.clock.now()))
            self.asked[number] += 1
            turn = self.throttle.take(came_back=came_back)
            if turn:
                ran.append(Ran(self.clock.now(), number))
            else:
                back = self.clock.now() + turn.come_back + late(number)
                heapq.heappush(self.waiting, (back, number, turn.in_line))
        return ran


@pytest.mark.parametrize("limits", ["10/second burst 4", "10/second burst 4; 1000/minute"])
def test_a_backlog_runs_in_order_at_the_rate_and_nobody_asks_more_than_twice(limits):
    """Of 200 tasks that come at once 4 run at once, and one every 0.1 s after them; each was handed back once."""
    queue = Queue(limits)
    queue.send(200)
    assert queue.work() == [Ran(max(0, number - 3) / 10, number) for number in range(200)]
    assert queue.asked == {number: 1 if number < 4 else 2 for number in range(200)}


def test_who_comes_later_stands_behind_those_who_were_handed_back():
    """A task that comes when the next one is due takes the place after the last, not the one that is due."""
    queue = Queue("1/second")
    queue.send(3)
    assert queue.work(until=0.5) == [Ran(0, 0)]
    queue.clock.set(0.999999)
    late = queue.throttle.take()
    assert (bool(late), late.in_line, late.come_back) == (False, True, 2.000001)
    assert queue.work() == [Ran(1, 1), Ran(2, 2)]
    queue.clock.set(3)
    assert queue.throttle.take(came_back=True)


def test_after_an_outage_the_limit_still_holds_and_there_is_no_storm():
    """All places have passed while no worker ran: the tasks come at once, and are given new ones, in order."""
    queue = Queue("10/second")
    queue.send(300)
    assert len(queue.work(until=0)) == 10
    queue.clock.set(60)
    ran = queue.work()
    assert [task.number for task in ran] == list(range(10, 300))
    assert all(task.at >= 60 + max(0, at - 9) / 10 for at, task in enumerate(ran))
    assert ran[-1].at == 60 + 28.0
    assert max(queue.asked.values()) <= 3


def test_who_comes_back_and_is_refused_does_not_stand_behind_all_who_came_after():
    """Somebody else spent the limit: it is told to come for the next unit, and not after the backlog of 50."""
    queue = Queue("10/second burst 1")
    assert queue.throttle.take()
    first, *_ = [queue.throttle.take() for _ in range(50)]
    assert first.come_back == 0.1
    queue.clock.set(0.1)
    assert queue.limiter.hit("k")
    refused = queue.throttle.take(came_back=True)
    assert (bool(refused), refused.in_line, refused.come_back) == (False, True, 0.1)
    assert queue.throttle.take().come_back == 5.0


def test_a_queue_that_comes_late_loses_nothing_within_a_burst():
    """Up to 0.9 s late, at 10 a second and with a burst of 10: nobody is refused when it comes back."""
    queue = Queue("10/second")
    queue.send(300)
    ran = queue.work(late=lambda number: number * 7 % 10 / 10)
    assert len(ran) == 300
    assert max(queue.asked.values()) == 2
    assert ran[-1].at < 29.9 + 0.9


@pytest.mark.parametrize(
    "limits", ["10/second by sliding-log", "10/second by fixed-window", "10/second by sliding-window/10"]
)
def test_windows_and_logs_are_paced_too(limits):
    """They cannot promise an instant; the line can, and the limit decides. Three questions a task are enough."""
    queue = Queue(limits)
    queue.send(100)
    ran = queue.work()
    assert sorted(task.number for task in ran) == list(range(100))
    assert ran[-1].at <= 11
    for at, task in enumerate(ran):
        assert task.at >= at // 10 - 1, "no more than 20 in what may be a second and its seam"
    assert sum(queue.asked.values()) <= 350


def test_a_short_wait_is_waited_for_in_the_worker():
    """A task that has to wait at most `wait` runs in its first try, at its instant; any other is handed back."""
    queue = Queue("2/second burst 1", wait=1.0)
    turns = [queue.throttle.take() for _ in range(2)]
    assert all(turns) and queue.clock.now() == 0.5
    with frozen(queue.limiter) as clock:
        start = clock.now()
        assert (
            queue.throttle.take() and queue.limiter.reserve("k", max_wait=2) and queue.limiter.reserve("k", max_wait=2)
        )
        later = queue.throttle.take()
        assert (bool(later), later.come_back, clock.now() - start) == (False, 1.5, 0)


def test_a_task_that_is_handed_back_is_not_charged(clock):
    """Only the tasks that ran are charged to the limit."""
    limiter = Limiter("10/minute", clock=clock)
    throttle = Throttle(limiter, "ann", wait=0)
    assert [bool(throttle.take()) for _ in range(30)] == [True] * 10 + [False] * 20
    clock.advance(60)
    assert limiter.peek("ann", cost=0).remaining == 10


def test_a_long_line_ends_after_fifteen_minutes_and_who_comes_then_tries_again_at_random():
    """No broker is asked to hold a task for longer; tasks that get no place do not come back at one instant."""
    queue = Queue("1/second")
    turns = [queue.throttle.take() for _ in range(1000)]
    placed = [turn.come_back for turn in turns if turn.in_line]
    assert placed == [float(second) for second in range(1, 901)]
    others = [turn.come_back for turn in turns[901:]]
    assert len(set(others)) == len(others) == 99
    assert all(LONGEST / 2 <= seconds <= LONGEST for seconds in others)


def test_a_limit_slower_than_the_longest_hand_back_is_asked_again_and_again():
    """Two a day: the third is told to come within fifteen minutes, as a newcomer."""
    queue = Queue("2/day by fixed-window")
    assert queue.throttle.take() and queue.throttle.take()
    third = queue.throttle.take(came_back=True)
    assert (bool(third), third.in_line) == (False, False)
    assert LONGEST / 2 <= third.come_back <= LONGEST


def test_keys_and_costs_come_from_the_arguments(clock):
    """Each key has a line of its own; a cost by name is charged to its limit."""
    limiter = Limiter("60/minute as rpm; 9000/minute as tpm", clock=clock)
    throttle = Throttle(
        limiter, key=lambda user, prompt: user, cost=lambda user, prompt: {"rpm": 1, "tpm": len(prompt)}, wait=0
    )
    assert throttle.take("ann", "x" * 9000)
    later = throttle.take("ann", prompt="x" * 1500)
    assert (bool(later), later.come_back) == (False, 10.0)
    assert throttle.take("bob", "hello")
    assert [verdict.remaining for verdict in limiter.peek("bob", {"rpm": 0, "tpm": 0}).verdicts] == [59, 8995]


def test_a_cost_that_can_never_fit_is_an_error_and_not_handed_back(clock):
    """It would come back for ever."""
    throttle = Throttle(Limiter("5/minute", clock=clock), "k", cost=6)
    with pytest.raises(RateLimited, match="the cost can never fit"):
        throttle.take()


def test_limits_of_one_namespace_do_not_share_their_lines(clock):
    """Two limiters, one key: the backlog of one does not delay the other."""
    slow = Limiter("1/minute", clock=clock)
    fast = Limiter("1/minute as fast", store=slow.store)
    assert [bool(Throttle(slow, "k", wait=0).take()) for _ in range(3)] == [True, False, False]
    assert Throttle(fast, "k", wait=0).take()


def test_a_store_that_is_away_follows_on_error():
    """With `deny` tasks come back after a second or two, each at an instant of its own, and not after 15 minutes."""
    with Limiter("5/minute", store="redis://127.0.0.1:1", on_error="deny") as limiter:
        throttle = Throttle(limiter, "k", wait=0)
        turns = [throttle.take() for _ in range(5)]
    assert not any(turn or turn.in_line for turn in turns)
    assert all(1 <= turn.come_back <= 2 for turn in turns)
    assert len({turn.come_back for turn in turns}) == 5


def test_settling_charges_what_a_task_really_cost(clock):
    """`settle` within the turn; outside of one it is an error, and so it is of a turn that was not taken."""
    limiter = Limiter("1000/minute", clock=clock)
    throttle = Throttle(limiter, "k", cost=500, wait=0)
    with throttle.take():
        settle(120)
        settle(999)
    assert limiter.peek("k", cost=0).remaining == 880
    assert throttle.take()
    later = throttle.take()
    with pytest.raises(InvalidCall, match="nothing to settle"):
        later.settle(3)
    with pytest.raises(InvalidCall, match="no throttled task runs here"):
        settle(3)


def test_a_task_that_fails_stays_charged_and_a_cancelled_one_does_not(clock):
    """Nobody knows whether it failed before or after the call that the limit is for."""
    limiter = Limiter("10/minute", clock=clock)
    throttle = Throttle(limiter, "k")
    with pytest.raises(ConnectionError), throttle.take():
        raise ConnectionError
    assert limiter.peek("k", cost=0).remaining == 9
    throttle.take().cancel()
    assert limiter.peek("k", cost=0).remaining == 9


def test_tools_for_testing_reach_the_lines():
    """`frozen`, `disabled` and `reset_all` of the limiter are enough."""
    limiter = Limiter("1/hour")
    throttle = Throttle(limiter, "k", wait=0)
    assert throttle.take() and not throttle.take()
    with disabled(limiter):
        assert all(throttle.take() for _ in range(5))
    with frozen(limiter) as clock:
        assert throttle.take() and not throttle.take()
        clock.advance(7200)
        assert throttle.take()
    assert not throttle.take()
    reset_all(limiter)
    assert throttle.take()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((AsyncLimiter("5/minute"), "k"), "a throttle needs a Limiter"),
        ((Limiter("5/minute; 2 in flight"), "k"), "cannot hold a limit in flight"),
        ((Limiter("5/minute"), 7), "a key must be a str, or a function"),
        ((Limiter("5/minute"), "k", 1, -1), "a time to wait must be a number of seconds"),
    ],
)
def test_mistakes_are_told_when_the_throttle_is_made(arguments, said):
    """The mistake is not told only when the first task runs."""
    with pytest.raises(InvalidCall, match=said):
        Throttle(*arguments)
