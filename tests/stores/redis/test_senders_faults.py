"""What befalls threads that wait for one that sends: each is answered in its own time and charged at most once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from headgate import Limiter
from headgate.engine import Decision
from headgate.stores.redis import RedisStore, Transition, senders
from headgate.stores.redis.connections import _Timely
from headgate.stores.redis.outgoing import Outgoing
from tests.support.crowds import LEFT, OTHERS, Crowd, answers, crowd
from tests.support.faults import DEADLINE, FAULTS, MANY, SLACK, at_most, heal, open_store, spent
from tests.support.inside import node_of, senders_of
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_answers_every_thread_in_time_and_charges_none_twice(server, proxy, fault, one_sends):
    """Of sixteen commands each is charged once or not at all, and the threads are answered by their deadline."""
    with crowd(proxy, deadline=DEADLINE) as threads:
        with at_most(DEADLINE + SLACK):
            others = [threads.ask(number) for number in range(1, OTHERS + 1)]
            heal(proxy)
            FAULTS[fault].inflict(proxy)
            decisions = [future.result(60) for future in (threads.first, *others)]
        heal(proxy)
        wait_until(lambda: not threads.limiter.hit("after").degraded, "the server is back")
    charged = [spent(server, f"key {number}") for number in range(OTHERS + 1)]
    for number, (decision, units) in enumerate(zip(decisions, charged, strict=True)):
        assert units in ((0, number + 1) if decision.degraded else (number + 1,))


def test_a_stopped_server_keeps_no_thread_beyond_its_deadline(server):
    """Forty threads ask a server that does not run: all are answered by `on_error`, and the server counts as away."""
    seen: list[Transition] = []
    with open_store(server.url, on_transition=seen.append) as store, ThreadPoolExecutor(40) as pool:
        limiter = Limiter(MANY, store=store)
        limiter.hit("warm")
        server.pause()
        try:
            with at_most(DEADLINE + SLACK):
                decisions = list(pool.map(lambda number: limiter.hit(f"key {number}"), range(40)))
        finally:
            server.resume()
        assert all(decision.degraded for decision in decisions)
        wait_until(lambda: not limiter.hit("warm").degraded, "the server is back")
    assert [each.available for each in seen] == [False, True]


def test_a_lost_connection_counts_as_one_failure(server, proxy, one_sends):
    """Fifteen commands are lost together: their threads are told, and the server does not count as away."""
    seen: list[Transition] = []
    with crowd(proxy, on_transition=seen.append) as threads:
        others = threads.gather()
        with held_again(threads):
            proxy.reset()
        assert answers(others) == [-1] * OTHERS
        proxy.release()
        assert threads.limiter.hit("after").remaining == 9_999
    assert seen == []


@contextmanager
def held_again(threads: Crowd) -> Iterator[None]:
    """Let the first command be answered, and hold the replies to those that waited."""
    node, ready = node_of(threads.limiter.store), threading.Event()
    connection = node.connection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "connection", lambda began: connection(began) if ready.wait(30) else None)
        threads.proxy.release()
        assert threads.first.result(60).remaining == LEFT[0]
        threads.proxy.hold()
        asked = threads.proxy.requests
        ready.set()
        wait_until(lambda: threads.proxy.requests > asked, "the others have been sent")
        yield


def test_threads_that_waited_while_the_server_went_away_do_not_ask_it(proxy, one_sends):
    """The commands of threads that wait when the breaker opens are never sent."""
    with crowd(proxy) as threads:
        others = threads.gather()
        node_of(threads.limiter.store).breaker.open = True
        proxy.release()
        assert answers([threads.first, *others]) == [LEFT[0], *[-1] * OTHERS]
        assert proxy.requests - threads.asked == 1


def test_a_sender_that_vanished_is_forgotten(server, one_sends, monkeypatch):
    """A thread that was interrupted at the worst moment stays among the senders until another one waits in vain."""
    monkeypatch.setattr(senders, "LONGEST_WAIT", 0.01)
    with open_store(server.url) as store:
        limiter = Limiter(MANY, store=store)
        limiter.hit("warm")
        senders_of(store).sending.add(Outgoing(b"", 0.0))
        assert limiter.hit("k").remaining == 9_999
        assert not senders_of(store).sending


def test_a_thread_that_waits_in_vain_looks_at_senders_that_come_meanwhile(server, one_sends, monkeypatch):
    """Without the GIL other threads begin to send while one looks for those that vanished: it looks at a copy."""
    monkeypatch.setattr(senders, "LONGEST_WAIT", 0.01)

    class Crowded(set[Outgoing]):
        def __iter__(self) -> Iterator[Outgoing]:
            for each in super().__iter__():
                senders_of(store).sending.add(Outgoing(b"", 0.0))
                yield each

    with open_store(server.url) as store:
        limiter = Limiter(MANY, store=store, on_error="raise")
        limiter.hit("warm")
        senders_of(store).sending = Crowded([Outgoing(b"", 0.0)])
        assert limiter.hit("k").remaining == 9_999


@contextmanager
def leading(store: RedisStore, act: Callable[[], None]) -> Iterator[None]:
    """The calling thread sends first, when `act` has been called in another thread."""
    node, acted = node_of(store), threading.Event()
    connection = node.connection

    def do() -> None:
        wait_until(lambda: senders_of(store).sending, "the thread is about to send")
        act()
        acted.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "connection", lambda began: connection(began) if acted.wait(30) else None)
        acting = threading.Thread(target=do)
        acting.start()
        yield
        acting.join()


@pytest.fixture
def interrupted():
    """Set when the main thread has been interrupted, by SIGINT and no other signal."""
    handled = threading.Event()

    def handle(*_: object) -> None:
        if not handled.is_set():
            handled.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    yield handled
    signal.signal(signal.SIGINT, before)


def interrupt(interrupted: threading.Event) -> None:
    """Interrupt the main thread: again, if the signal came just before it began to wait, and did not wake it."""
    for _ in range(300):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if interrupted.wait(0.1):
            return
    raise AssertionError("the main thread handles no signal")


def test_an_interrupt_of_the_thread_that_sends_leaves_the_others_their_answers(
    server, proxy, one_sends, interrupted, monkeypatch
):
    """Ctrl-C while the main thread reads for fifteen others ends only the main thread's own call."""
    others: list[Future[Decision]] = []
    reading, read = threading.Event(), _Timely.read_expected
    with open_store(proxy.url, deadline=60, connect_timeout=60) as store, ThreadPoolExecutor(OTHERS + 1) as pool:
        limiter = Limiter(MANY, store=store)
        limiter.hit("warm")

        def gather() -> None:
            proxy.hold()
            others.extend(pool.submit(limiter.hit, f"key {number}", number + 1) for number in range(1, OTHERS + 1))
            wait_until(lambda: len(senders_of(store).waiting) == OTHERS, "the others wait")
            monkeypatch.setattr(_Timely, "read_expected", notice)
            pool.submit(disturb)

        def notice(connection: _Timely, batch: list[Outgoing]) -> bool:
            reading.set()
            return read(connection, batch)

        def disturb() -> None:
            assert reading.wait(30)
            interrupt(interrupted)
            proxy.release()

        with leading(store, gather), pytest.raises(KeyboardInterrupt):
            limiter.hit("key 0", 1)
        assert answers(others) == LEFT[1:]
        assert limiter.hit("after").remaining == 9_999
    assert [spent(server, f"key {number}") for number in range(OTHERS + 1)] == list(range(1, OTHERS + 2))


def test_an_interrupt_of_a_thread_that_waits_takes_its_command_back(server, proxy, one_sends, interrupted):
    """Ctrl-C while the main thread waits for another one: its command is never sent, all others are."""
    with crowd(proxy) as threads:
        others = threads.gather()

        def act() -> None:
            wait_until(lambda: len(threads.senders.waiting) == OTHERS + 1, "the main thread waits too")
            interrupt(interrupted)

        acting = threads.pool.submit(act)
        with pytest.raises(KeyboardInterrupt):
            threads.limiter.hit("main")
        acting.result(60)
        proxy.release()
        assert answers([threads.first, *others]) == LEFT
    assert spent(server, "main") == 0


def test_a_thread_that_ends_while_it_sends_leaves_none_waiting(proxy, one_sends, monkeypatch):
    """Where a thread dies of its own errors, those it sent for are told, and the next thread sends."""

    class DiesError(Exception):
        pass

    def die(connection: Any, batch: list[Outgoing]) -> None:
        connection.parsing = True
        raise DiesError

    with crowd(proxy) as threads:
        others = threads.gather()
        dying = next(iter(threads.senders.waiting))
        real = _Timely.read
        monkeypatch.setattr(_Timely, "read", lambda at, batch: die(at, batch) if dying in batch else real(at, batch))
        proxy.release()
        assert threads.first.result(60).remaining == LEFT[0]
        with pytest.raises(DiesError):
            others[0].result(60)
        assert answers(others[1:]) == [-1] * (OTHERS - 1)
        assert threads.limiter.hit("after").remaining == 9_999


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_inherits_no_sender_and_no_command_that_waits(server, proxy, one_sends):
    """A child that is forked while threads of its parent wait is answered, and sends nothing of theirs."""
    with crowd(proxy) as threads:
        others = threads.gather()
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writes, json.dumps(threads.limiter.hit("child").remaining).encode())
            finally:
                os._exit(0)
        os.close(writes)
        proxy.release()
        with os.fdopen(reads) as answer:
            assert json.load(answer) == 9_999
        os.waitpid(child, 0)
        assert answers([threads.first, *others]) == LEFT
    assert [spent(server, f"key {number}") for number in range(OTHERS + 1)] == list(range(1, OTHERS + 2))
