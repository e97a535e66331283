"""Celery: tasks under a limit, in a real worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery, chord, shared_task  # type: ignore[import-untyped]

from headgate import InvalidCall, Limiter, RateLimited
from headgate.tasks import Throttle, celery
from headgate.testing import frozen
from tests.support import task_apps
from tests.support.task_queues import PATIENCE, assert_within, noted, now_us, working

pytestmark = pytest.mark.engineless


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


def test_celery_tasks_may_call_throttled_functions(celery_worker, broker):
    """A no is raised where they do it; the task at work is not handed back for it, and so runs once."""
    assert task_apps.batch.delay("ann", "ann").get(timeout=PATIENCE) == ["ann", "refused"]
    assert len(noted(broker, "batch")) == 1
    assert noted(broker, "back:batch") == []


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


def test_celery_a_throttle_above_its_task_raises():
    """The worker would run the task by its name, without the throttle: made at once, when finished, or shared."""
    app = Celery("mistaken")
    limiter = Limiter("1/hour")
    for task in (app.task, app.task(bind=True), app.task(lazy=False), shared_task):
        with pytest.raises(InvalidCall, match="swap the two lines"):

            @celery.throttled(limiter, key="all")
            @task
            def send(*args: object) -> None: ...
