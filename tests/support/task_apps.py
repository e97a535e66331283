"""Tasks for real workers: broker, results and limits are in the Redis of HEADGATE_URL, and so is what they note."""

# Celery's decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery  # type: ignore[import-untyped]
from celery.signals import task_retry  # type: ignore[import-untyped]

from headgate import Limiter, RateLimited
from headgate.tasks import celery, rq, settle

URL = os.environ.get("HEADGATE_URL", "")
# A task may wait for the server longer than a web request: nothing here is decided without it.
STORE = f"{URL}?deadline=5&connect_timeout=5" if URL else "memory://"
RATE, BURST = 10, 2

mail = Limiter(f"{RATE}/second burst {BURST}", store=STORE, namespace="mail", on_error="raise")
few = Limiter("5/second burst 1", store=STORE, namespace="few", on_error="raise")
fewer = Limiter("2/second burst 1", store=STORE, namespace="fewer", on_error="raise")
many = Limiter("100/hour", store=STORE, namespace="many", on_error="raise")
tokens = Limiter("60/week as rpm; 9000/week as tpm", store=STORE, namespace="tokens", on_error="raise")


def notes() -> redis.Redis:
    """Where tasks note what they did."""
    return redis.Redis.from_url(URL)


def note(what: str, *said: object) -> None:
    """With the server's time, in microseconds."""
    client = notes()
    seconds, us = client.time()
    client.rpush(what, " ".join(map(str, (seconds * 1_000_000 + us, os.getpid(), *said))))
    client.close()


app = Celery("tests.support.task_apps", broker=URL or "memory://", backend=URL or "cache+memory://")
app.conf.update(
    broker_connection_retry_on_startup=True, worker_prefetch_multiplier=4, task_default_queue="celery-tasks"
)


@task_retry.connect
def _note_handing_back(sender: Any, reason: Any, **_: Any) -> None:
    note(f"back:{sender.name.rpartition('.')[2]}", reason)


@app.task(bind=True)
@celery.throttled(mail, key=lambda customer, *_: customer, wait=0.05)
def send(self: Any, customer: str, number: int = 0) -> int:
    note("send", number, self.request.retries)
    return number


@app.task(bind=True, max_retries=2)
@celery.throttled(few, key="everyone", wait=0.1)
def fail(self: Any, name: str) -> str:
    """Fails twice, and may be retried twice."""
    note("fail", name, self.request.retries)
    if self.request.retries < 2:
        raise self.retry(exc=ConnectionError(), countdown=0)
    return name


@app.task
@celery.throttled(many, key=lambda name: name)
@celery.throttled(few, key="both", wait=0)
def twice(name: str) -> str:
    """Two limits, of which the second hands back."""
    note("twice", name)
    return name


@app.task
@celery.throttled(tokens, key="model", cost=lambda prompt: {"rpm": 1, "tpm": 10 * len(prompt)})
def ask(prompt: str) -> None:
    settle(tpm=7)


@app.task
@celery.throttled(tokens, key=lambda name: name, cost={"rpm": 60, "tpm": 1}, wait=0)
def weekly(name: str) -> str:
    return name


@app.task
def batch(*names: str) -> list[str]:
    """Calls a function that is a task elsewhere."""
    note("batch", *names)
    told = []
    for name in names:
        try:
            told.append(weekly.run(name))
        except RateLimited:
            told.append("refused")
    return told


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@rq.throttled(mail, key=lambda customer, *_: customer, wait=0.05)
def rq_send(customer: str, number: int = 0) -> int:
    note("rq_send", number)
    return number


@rq.throttled(fewer, key="rq", wait=0.1)
def rq_fail(name: str) -> str:
    """Fails the first time."""
    from rq import get_current_job

    job = get_current_job()
    assert job is not None
    note("rq_fail", name, job.retries_left, job.number_of_retries or 0)
    if job.retries_left:
        raise ConnectionError
    return name


@rq.throttled(many, key=lambda name: name)
@rq.throttled(fewer, key="again", wait=0.4)
def rq_again(name: str) -> object:
    """Asks to be retried itself, once. Two limits, of which the second hands back."""
    from rq import Retry, get_current_job

    job = get_current_job()
    assert job is not None
    note("rq_again", name, job.number_of_retries or 0)
    return name if job.number_of_retries else Retry(max=1)


@rq.throttled(tokens, key=lambda name: name, cost={"rpm": 60, "tpm": 1}, wait=0)
def rq_weekly(name: str) -> str:
    return name


def rq_batch(*names: str) -> list[str]:
    """Calls a function that is a job elsewhere."""
    told = []
    for name in names:
        try:
            told.append(rq_weekly(name))
        except RateLimited:
            told.append("refused")
    return told


@rq.throttled(many, key="async", cost=50)
async def rq_ask() -> int:
    settle(7)
    return 7
