"""Dramatiq: actors under a limit, in a worker of this process and in real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, CurrentMessage, MiddlewareError
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

from headgate import Limiter, RateLimited
from headgate.tasks import Throttle, settle
from headgate.tasks.dramatiq import Throttling
from tests.support.task_queues import PATIENCE, assert_within, now_us

pytestmark = pytest.mark.engineless


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
