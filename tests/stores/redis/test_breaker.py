"""While a server is away nobody waits for it; when it is back it is found, whatever happened meanwhile."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import Limiter, StoreError
from headgate.stores import breaker as module
from headgate.stores.breaker import Breaker
from headgate.stores.redis import Transition
from headgate.testing import ManualClock
from tests.support.faults import (
    FAULTS,
    MANY,
    SLACK,
    TROUBLES,
    at_most,
    each_way,
    heal,
    in_trouble,
    limiter_on,
    limiters,
    open_store,
    says,
)
from tests.support.proxy import Proxy
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_server_whose_trouble_ends_is_back_by_itself_and_both_are_told_once(server, trouble):
    """The hook is called once for the outage and once for the return."""
    seen: list[Transition] = []
    with contextlib.ExitStack() as stack:
        with in_trouble(server, trouble) as url:
            limiter = Limiter(MANY, store=stack.enter_context(open_store(url, on_transition=seen.append)))
            assert all(limiter.hit("k").degraded for _ in range(5))
        wait_until(lambda: len(seen) > 1, "the server is back")
        assert not limiter.hit("k").degraded
    assert [each.available for each in seen] == [False, True]


def test_a_server_that_loads_is_away_until_it_has_loaded():
    """A server that reads its data answers with an error that says so, and serves afterwards."""
    slow = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]
    with Server(*slow) as server, ThreadPoolExecutor(1) as pool, open_store(server.url, deadline=60) as store:
        server.client().mset({f"k{n}": "x" * 100 for n in range(400)})
        server.client().save()
        server.kill()
        restart = pool.submit(server.start)
        wait_until(lambda: says(server, "loading"), "the server loads")
        with pytest.raises(StoreError, match="loading"):
            Limiter(MANY, store=store, on_error="raise").hit("k")
        restart.result()
        assert not Limiter(MANY, store=store).hit("k").degraded


def test_a_killed_server_that_keeps_its_data_goes_on_where_it_was():
    """Counts of before the outage are there after it."""
    with Server(persist=True) as server, limiter_on(server.url) as limiter:
        limiter.hit("k", 7)
        with in_trouble(server, "killed"):
            assert all(limiter.hit("k").degraded for _ in range(5))
        wait_until(lambda: not limiter.peek("k").degraded, "the server is back")
        assert limiter.hit("k").remaining == 10_000 - 8


@each_way
def test_nobody_waits_for_a_server_known_to_be_away_and_its_return_is_found(proxy, way):
    """200 hits after the first failures are answered at once, and the next by the server when it is back."""
    seen: list[Transition] = []
    with limiters(way, proxy.url, on_transition=seen.append) as make:
        limiter = make(MANY)
        limiter.hit("k")
        proxy.hold()
        for _ in range(3):
            limiter.hit("k")
        with at_most(SLACK):
            assert all(limiter.hit("k").degraded for _ in range(200))
        proxy.release()
        wait_until(lambda: len(seen) > 1, "the server is back")
        assert not limiter.hit("k").degraded
    assert [each.available for each in seen] == [False, True]


@each_way
def test_a_server_is_found_back_although_no_thread_could_be_started_to_probe_it(proxy, way, monkeypatch):
    """No decision fails, and none hangs, for want of a thread: it asks the server itself, until a thread can start."""
    seen: list[Transition] = []
    with limiters(way, proxy.url, on_transition=seen.append) as make:
        limiter = make(MANY)
        limiter.hit("k")
        proxy.hold()
        with monkeypatch.context() as patch, at_most(SLACK):
            patch.setattr(threading.Thread, "start", refuse_to_probe)
            assert all(limiter.hit("k").degraded for _ in range(4))
        assert [each.available for each in seen] == [False, True] and "no thread" in seen[1].reason
        assert all(limiter.hit("k").degraded for _ in range(3))
        proxy.release()
        wait_until(lambda: len(seen) > 3, "the server is back")
        assert not limiter.hit("k").degraded
    assert [each.available for each in seen] == [False, True, False, True]


start = threading.Thread.start


def refuse_to_probe(thread: threading.Thread) -> None:
    """Start any thread but the one that probes."""
    if thread.name == "headgate-probe":
        raise RuntimeError("can't start new thread")
    start(thread)


@pytest.mark.parametrize(("between", "opens"), [(0, True), (3, True), (4, False)])
def test_the_third_failure_opens_it_if_half_of_all_have_failed(between, opens):
    """With three successes between three failures the server is known to be away, with four it is not."""
    breaker = Breaker()
    assert not breaker.failed()
    for _ in range(between):
        breaker.succeeded()
    assert not breaker.failed()
    assert (breaker.failed(), breaker.open) == (opens, opens)


@pytest.mark.parametrize(("apart", "opens"), [(10, True), (10.1, False)])
def test_failures_that_take_long_count_together(monkeypatch, apart, opens):
    """The window of 10 s is between the end of one and the beginning of the next: each may take a minute itself."""
    clock = ManualClock()
    monkeypatch.setattr(module, "SystemClock", lambda: clock)
    breaker = Breaker()
    for _ in range(3):
        clock.advance(60 + apart)
        breaker.failed(60.0)
    assert breaker.open == opens


def test_late_replies_do_not_end_the_trouble_of_a_server_that_is_away():
    """Successes of commands that were under way change nothing until a probe has passed."""
    breaker = Breaker()
    for _ in range(3):
        breaker.failed()
    for _ in range(20):
        breaker.succeeded()
    assert (breaker.open, breaker.troubled) == (True, True)
    breaker.close()
    assert (breaker.open, breaker.troubled) == (False, False)


def test_a_failure_made_good_long_since_keeps_nobody_waiting_when_the_server_goes_away(proxy):
    """One failure long ago is forgotten: an outage is told once."""
    seen: list[Transition] = []
    with limiter_on(proxy.url, on_transition=seen.append) as limiter:
        limiter.hit("k")
        proxy.drop_reply()
        assert limiter.hit("k").degraded
        assert not any(limiter.hit("k").degraded for _ in range(200))
        proxy.hold()
        for _ in range(6):
            limiter.hit("k")
        assert [each.available for each in seen] == [False]


@pytest.mark.parametrize("closed", ["before the server went away", "while it was away"])
def test_a_closed_store_that_is_used_again_finds_its_server_back(server, closed):
    """A store closed before or during an outage finds the server when it is back."""
    with open_store(server.url) as store:
        limiter = Limiter(MANY, store=store)
        limiter.hit("k")
        if closed == "before the server went away":
            store.close()
        with in_trouble(server, "killed"):
            assert all(limiter.hit("k").degraded for _ in range(5))
            if closed == "while it was away":
                store.close()
        wait_until(lambda: not limiter.hit("k").degraded, "the server is back", 3)


def begin_a_probe(limiter: Limiter, proxy: Proxy) -> None:
    """Let the server go away and come back, and hold the first question to it."""
    FAULTS["nobody there"].inflict(proxy)
    assert all(limiter.hit("k").degraded for _ in range(5))
    before = proxy.requests
    proxy.hold()
    proxy.accept()
    wait_until(lambda: proxy.requests > before, "a probe is on its way")


def test_a_store_closed_during_a_probe_and_used_again_at_once_finds_its_server_back(proxy):
    """A probe from before the close does not keep later probes away."""
    with open_store(proxy.url) as store:
        limiter = Limiter(MANY, store=store)
        limiter.hit("k")
        begin_a_probe(limiter, proxy)
        store.close()
        proxy.refuse()
        assert all(limiter.hit("k").degraded for _ in range(5))
        wait_until(lambda: proxy.open_connections == 0, "the probe has given up")
        heal(proxy)
        wait_until(lambda: not limiter.hit("k").degraded, "the server is back", 3)


def test_a_store_closed_during_a_probe_that_passes_keeps_no_connection(proxy):
    """The connection of the probe is closed too."""
    with open_store(proxy.url, deadline=5) as store:
        limiter = Limiter(MANY, store=store)
        begin_a_probe(limiter, proxy)
        store.close()
        proxy.release()
        wait_until(lambda: proxy.open_connections == 0, "everything is closed", 3)


def test_a_server_that_takes_longer_to_connect_to_than_to_ask_is_found_back():
    """A password and a database are round trips of their own."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(password="secret"))
        proxy = stack.enter_context(Proxy(server))
        store = stack.enter_context(open_store(f"{proxy.url}/1", deadline=0.75, connect_timeout=5))
        limiter = Limiter(MANY, store=store)
        limiter.hit("k")
        proxy.delay(0.4)
        assert not limiter.hit("k").degraded
        proxy.reset()
        wait_until(lambda: not limiter.hit("k").degraded, "the server is back", 10)


def test_threads_that_fail_together_tell_of_it_once(server):
    """64 hits of 16 threads are one outage and one return."""
    seen: list[Transition] = []
    before = sys.getswitchinterval()
    with limiter_on(server.url, on_transition=seen.append) as limiter, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: limiter.hit("k"), range(64)))
        try:
            sys.setswitchinterval(1e-6)
            with in_trouble(server, "paused"):
                assert all(pool.map(lambda _: limiter.hit("k").degraded, range(64)))
        finally:
            sys.setswitchinterval(before)
        wait_until(lambda: len(seen) > 1, "the server is back")
    assert [(each.server, each.available) for each in seen] == [("server", False), ("server", True)]


def test_a_hook_that_fails_breaks_no_decision(server, caplog):
    """An exception in `on_transition` is logged, and hits are answered."""

    def hook(transition: Transition) -> None:
        raise ValueError("no pager")

    def failed() -> int:
        return [record.getMessage() for record in caplog.records].count("the on_transition hook failed")

    with limiter_on(server.url, "10/week", on_transition=hook) as limiter:
        with in_trouble(server, "killed"):
            assert [limiter.hit("k").remaining for _ in range(5)] == [9, 8, 7, 6, 5]
            assert failed() == 1
        wait_until(lambda: failed() == 2, "the hook was called for the return too")
        assert not limiter.hit("k").degraded


@each_way
@pytest.mark.parametrize("password", [None, "secret"])
def test_a_server_that_stands_still_delays_nobody_beyond_the_deadline(password, way):
    """Eight callers ask it all the time, and are answered while it still stands."""
    keys = [f"k{number}" for number in range(8)]
    with Server(password=password) as server, limiters(way, server.url, deadline=0.05) as make:
        limiter = make(MANY)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(limiter.hit, keys))
            with in_trouble(server, "paused"):
                asking = [pool.submit(lambda key: [limiter.hit(key).degraded for _ in range(20)], key) for key in keys]
                assert [each.result(0.05 + SLACK) for each in asking] == [[True] * 20] * 8


def test_a_connection_that_was_closed_while_idle_costs_nobody_an_answer(server, monkeypatch):
    """A balancer hangs up after a while; the server is well."""
    monkeypatch.setattr("headgate.stores.redis.node.LONG_IDLE", 0.0)
    with limiter_on(server.url) as limiter:
        limiter.hit("k")
        server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert not limiter.hit("k").degraded
