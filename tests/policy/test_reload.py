"""A policy that follows its file: read beside the requests, and never at their expense."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate import MemoryStore
from headgate.policy import Policy
from headgate.policy.reload import READER, PolicyFile
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi, wsgi
from tests.support.flight import in_child
from tests.support.inside import runtime_of

pytestmark = pytest.mark.engineless


PATIENCE = 30
"""Seconds after which a test has hung."""


def write(file: Path, limits: str, more: str = "") -> None:
    """Exchange a policy as deployments do, at once."""
    (file.parent / "new").write_text(f"rules: [{{name: api, key: ip, limits: {limits}}}]\n{more}")
    os.replace(file.parent / "new", file)


STARTED: list[threading.Thread] = []
"""Every thread of a test: `threading.enumerate` forgets one that ends a moment before it has ended."""


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """Note the threads that a test starts."""

    class Noted(threading.Thread):
        def start(self) -> None:
            STARTED.append(self)
            super().start()

    monkeypatch.setattr(threading, "Thread", Noted)
    yield
    STARTED.clear()


def readers() -> list[threading.Thread]:
    return [thread for thread in STARTED if thread.name == READER and thread.is_alive()]


def until_read() -> None:
    for thread in readers():
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A policy, looked at with every request."""
    monkeypatch.setattr("headgate.policy.reload.EVERY", 0.0)
    write(tmp_path / "policy.yaml", "9/minute")
    return tmp_path / "policy.yaml"


@pytest.fixture
def slowly(monkeypatch):
    """Reading waits until it is told to go on; only the reader does."""
    load, go, here = Policy.load, threading.Event(), threading.Event()

    def slow(given: Any) -> Policy:
        if threading.current_thread().name == READER:
            here.set()
            assert go.wait(PATIENCE)
        return load(given)

    monkeypatch.setattr(Policy, "load", slow)
    yield go, here
    go.set()
    until_read()


def quota(app: RateLimitMiddleware) -> str:
    """What the policy of a request allows."""
    return wsgi(app).fields["ratelimit-policy"].partition("q=")[2].partition(";")[0]


def test_requests_are_answered_while_a_changed_file_is_read(file, slowly):
    """The present policy answers, however long the reading takes; the new one answers as soon as it is ready."""
    go, here = slowly
    app = RateLimitMiddleware(plain_wsgi, file)
    write(file, "8/minute")
    assert quota(app) == "9"
    assert here.wait(PATIENCE)
    assert [quota(app) for _ in range(3)] == ["9"] * 3
    assert len(readers()) == 1
    go.set()
    until_read()
    assert quota(app) == "8"


def test_no_thread_is_started_while_a_file_stays_as_it_is(file):
    """A policy that is no file starts no thread either."""
    for policy in (file, {"rules": [{"key": "ip", "limits": "1/hour"}]}):
        app = RateLimitMiddleware(plain_wsgi, policy)
        for _ in range(3):
            wsgi(app)
        assert readers() == []


@pytest.mark.parametrize(
    "more",
    [
        "stores: {far: 'nowhere://at/all'}",
        "headers: [x-ratelimit, x-ratelimit-epoch]",
        "namespace: 2020-99-99",
        "rules: []",
        "[",
    ],
)
def test_a_file_that_cannot_be_used_keeps_the_old_policy_and_is_told_of_once(file, caplog, more):
    """A mistake, or a store that cannot be opened: read once, and again when the file changes again."""
    app = RateLimitMiddleware(plain_wsgi, file)
    with caplog.at_level(logging.ERROR, "headgate"):
        write(file, "8/minute", more)
        for _ in range(3):
            assert quota(app) == "9"
            until_read()
    assert len([record for record in caplog.records if "policy.yaml" in record.getMessage()]) == 1
    write(file, "7/minute")
    quota(app)
    until_read()
    assert quota(app) == "7"


def test_whatever_reading_raises_is_told_of_once_and_changes_nothing(file, caplog, monkeypatch):
    """With its traceback; no request sees it."""

    def broken(given: Any) -> Policy:
        raise RuntimeError("on fire")

    app = RateLimitMiddleware(plain_wsgi, file)
    monkeypatch.setattr(Policy, "load", broken)
    write(file, "8/minute")
    with caplog.at_level(logging.ERROR, "headgate"):
        for _ in range(3):
            assert quota(app) == "9"
            until_read()
        assert app.reload() is False
    assert caplog.text.count("RuntimeError: on fire") == 2


def test_a_reload_is_not_undone_by_a_reading_that_began_before_it(file, slowly):
    """A reading that began later is newer, whichever ends first."""
    go, here = slowly
    app = RateLimitMiddleware(plain_wsgi, file)
    write(file, "8/minute")
    assert quota(app) == "9"
    assert here.wait(PATIENCE)
    write(file, "7/minute")
    assert app.reload() is True
    assert quota(app) == "7"
    write(file, "6/minute")
    go.set()
    until_read()  # which has read 6 by now, but may have read 8
    assert [quota(app) for _ in range(2)] == ["7"] * 2
    until_read()
    assert quota(app) == "6"


def test_a_store_that_is_bound_while_a_policy_is_made_ready_stays_bound(file):
    """A policy that was made ready for the other store is made for this one, as if the file had changed again."""
    go, here = threading.Event(), threading.Event()

    class Slowly(MemoryStore):
        def bind(self, *given: Any) -> Any:
            if threading.current_thread().name == READER:
                here.set()
                assert go.wait(PATIENCE)
            return super().bind(*given)

    app, store = RateLimitMiddleware(plain_wsgi, file, store=Slowly()), MemoryStore()
    write(file, "8/minute")
    quota(app)
    assert here.wait(PATIENCE)
    runtime_of(app)._use(store)
    go.set()
    until_read()
    assert [quota(app) for _ in range(2)] == ["9"] * 2
    until_read()
    assert quota(app) == "8"
    assert store.keys() == 1


def test_where_no_thread_can_be_started_the_file_is_read_by_the_request(file, monkeypatch):
    """As in an interpreter that is ending, or on a platform without threads."""

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    app = RateLimitMiddleware(plain_wsgi, file)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    write(file, "8/minute")
    assert [quota(app) for _ in range(2)] == ["9", "8"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_while_a_file_is_read_reads_it_itself(file, slowly):
    """A thread does not survive a fork, and neither would the change."""
    go, here = slowly
    app = RateLimitMiddleware(plain_wsgi, file)
    write(file, "8/minute")
    quota(app)
    assert here.wait(PATIENCE)

    def read() -> str:
        go.set()
        quota(app)
        until_read()
        return quota(app)

    assert in_child(read) == "'8'"


def test_reload_says_what_is_true(file):
    """True where the policy is another now, false where it stayed; and false where there is no file."""
    app = RateLimitMiddleware(plain_wsgi, file)
    write(file, "8/minute")
    assert app.reload() is True
    assert quota(app) == "8"
    write(file, "[")
    assert app.reload() is False
    assert quota(app) == "8"
    file.unlink()
    assert app.reload() is False
    assert RateLimitMiddleware(plain_wsgi, Policy.load({"rules": [{"key": "ip", "limits": "1/s"}]})).reload() is False


def test_every_reload_that_fails_is_counted_once_in_its_process(file):
    """16 threads read a bad file 20 times each: 320 failures. A forked child has none, and the parent keeps its own."""
    policy = PolicyFile(file, lambda policy: policy)
    write(file, "9/fortnight")

    def fail() -> None:
        for _ in range(20):
            assert policy.reload() is None

    threads = [threading.Thread(target=fail) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert policy.failures == 320
    assert in_child(lambda: policy.failures) == "0"
    assert policy.failures == 320


def test_a_file_that_is_gone_for_a_moment_is_no_change(file):
    """Deployments exchange files in more ways than one."""
    followed = PolicyFile(file, lambda policy: policy)
    file.unlink()
    assert followed.next() is None
    assert readers() == []
