"""RQ: jobs under a limit, in a real worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import redis
import rq

from headgate import Limiter, RateLimited
from headgate.tasks.rq import throttled as rq_throttled
from headgate.testing import frozen
from tests.support import task_apps
from tests.support.servers import wait_until
from tests.support.task_queues import assert_within, noted, now_us, working

pytestmark = pytest.mark.engineless


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
