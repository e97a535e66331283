"""A server that is away, unwell or out of reach: no decision hangs, none is charged twice, `on_error` answers."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import Limiter, StoreError
from headgate.engine import NATIVE, Decision
from tests.support.faults import (
    DEADLINE,
    FAULTS,
    MANY,
    NONSENSE,
    POLICIES,
    SAID,
    SLACK,
    TROUBLES,
    Trickle,
    at_most,
    calls,
    each_way,
    heal,
    in_trouble,
    limiter_on,
    limiters,
    open_store,
    said,
    spent,
    stranger,
)
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless


def follows(on_error: str, ask: Callable[[], Decision], why: str | None = None) -> None:
    """The first question that a fallback gets about `10/week` is answered by the policy, in time."""
    with at_most(DEADLINE + SLACK):
        if on_error == "raise":
            with pytest.raises(StoreError, match=why):
                ask()
        else:
            assert said(ask()) == SAID[on_error]


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_is_answered_in_time_by_the_policy(proxy, fault, on_error):
    """Every fault is answered within the deadline, as `on_error` says."""
    with limiter_on(proxy.url, "10/week", on_error=on_error) as limiter:
        assert limiter.hit("k").remaining == 9
        FAULTS[fault].inflict(proxy)
        follows(on_error, lambda: limiter.hit("k"))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_charges_at_most_once_and_leaves_no_reply_to_the_next(server, proxy, fault):
    """A hit that failed is charged once if it arrived, and the next hit gets its own reply."""
    with limiter_on(proxy.url) as limiter:
        limiter.hit("k")
        FAULTS[fault].inflict(proxy)
        assert limiter.hit("k", 10).degraded
        heal(proxy)
        after = limiter.hit("other", 3)
        assert (after.degraded, after.remaining) == (False, 9_997)
        wait_until(lambda: spent(server) >= 1 + 10 * FAULTS[fault].arrive, "what was sent has arrived")
        assert spent(server) == 1 + 10 * FAULTS[fault].arrive


@each_way
def test_a_reply_that_trickles_in_is_not_waited_for_beyond_the_deadline(server, way):
    """Bytes that arrive one by one do not prolong the deadline."""
    with Trickle(server) as proxy, limiters(way, proxy.url) as make:
        limiter = make("10/week")
        limiter.hit("other")
        proxy.delay(0.02)
        follows("local", lambda: limiter.hit("k"))


@each_way
def test_a_script_that_has_to_be_sent_again_does_not_get_the_deadline_twice(server, proxy, way):
    """One deadline is for both commands."""
    with limiters(way, proxy.url, deadline=0.8) as make:
        limiter = make("10/week")
        limiter.hit("other")
        server.client().script_flush()
        proxy.delay(0.7)
        with at_most(0.8 + SLACK):
            assert limiter.hit("k").degraded


@each_way
@pytest.mark.parametrize("reply", NONSENSE)
def test_a_server_that_talks_nonsense_is_as_good_as_away(reply, way):
    """A reply that is none is answered for by `on_error` within the deadline."""
    with stranger(reply) as url, limiters(way, url) as make:
        follows("local", lambda: make("10/week").hit("k"))


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_server_in_trouble_is_answered_for_by_the_policy(server, trouble, on_error):
    """A server that is killed, paused, full or closed to us is answered for by `on_error`, with the reason."""
    with in_trouble(server, trouble) as url, open_store(url) as store:
        follows(on_error, lambda: Limiter("10/week", store=store, on_error=on_error).hit("k"), TROUBLES[trouble].why)


def test_scripts_flushed_under_load_are_sent_again_and_nothing_is_lost(server):
    """1500 hits of four threads get 1500 different answers, though the server keeps forgetting the script."""
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            server.client().script_flush()

    with open_store(server.url, deadline=5) as store, ThreadPoolExecutor(4) as pool:
        limiter, before = Limiter(MANY, store=store), calls(server, "eval")
        flushing = pool.submit(flush)
        decisions = list(pool.map(lambda _: limiter.hit("k"), range(1500)))
        stop.set()
        flushing.result()
    assert not any(decision.degraded for decision in decisions)
    assert {decision.remaining for decision in decisions} == set(range(8_500, 10_000))
    assert calls(server, "eval") > before + 10


def test_a_server_that_forgot_everything_makes_every_key_as_new(server):
    """After a flush a spent key has all of its limit."""
    with limiter_on(server.url, "3/week") as limiter:
        assert all(limiter.hit("k") for _ in range(3))
        server.client().flushall()
        assert said(limiter.hit("k")) == (False, True, 2, 0.0)


@pytest.mark.parametrize("minutes", [-2, 2])
def test_a_client_whose_clock_is_off_changes_nothing(server, monkeypatch, minutes):
    """In two minutes `60/hour` would let two more pass."""
    now, now_ns = time.time, time.time_ns
    with open_store(server.url, remember_refusals=0) as right, contextlib.ExitStack() as stack:
        monkeypatch.setattr(time, "time", lambda: now() + 60 * minutes)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 60_000_000_000 * minutes)
        wrong = stack.enter_context(open_store(server.url, remember_refusals=0))
        honest, liar = (Limiter("60/hour", store=store) for store in (right, wrong))
        assert (liar.take_up_to("k", 40).granted, honest.take_up_to("k", 40).granted) == (40, 20)
        for limiter in (liar, honest, liar):
            decision = limiter.hit("k")
            assert not decision and 0 < decision.retry_after <= 60


def test_the_limits_hold_in_the_process_while_the_server_is_away(server):
    """`local` counts in this process: three pass and two do not."""
    with in_trouble(server, "killed") as url, limiter_on(url, "3/week") as limiter:
        decisions = [limiter.hit("k") for _ in range(5)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False, False]
    assert all(decision.degraded for decision in decisions)


def test_each_of_several_nodes_lets_its_share_pass(server):
    """With `nodes=4` each process admits a quarter of the limit and of its burst, and of fewer than four one."""
    with in_trouble(server, "killed") as url, open_store(url, nodes=4) as store:
        assert [bool(Limiter("10/week", store=store).hit("k")) for _ in range(4)] == [True, True, False, False]
        for few in ("3/week as amount", "100/week burst 3 as burst"):
            assert [bool(Limiter(few, store=store).hit("k")) for _ in range(2)] == [True, False], few


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
def test_processes_of_a_host_may_share_what_answers_meanwhile(server, tmp_path):
    """Two stores with one shared store beside them admit the limit together."""
    local = f"shared://{tmp_path}/local"
    with in_trouble(server, "killed") as url, open_store(url, local=local) as one, open_store(url, local=local) as two:
        decisions = [Limiter("3/week", store=store).hit("k") for store in (one, two, one, two)]
    assert [said(decision)[:3] for decision in decisions] == [
        (True, True, 2), (True, True, 1), (True, True, 0), (True, False, 0),
    ]  # fmt: skip


def test_a_lost_refund_is_logged_and_the_units_stay_spent(server, proxy, caplog):
    """A refund that fails is a warning in the log, and is not sent again later."""
    with limiter_on(proxy.url) as limiter:
        decision = limiter.hit("k", 5)
        FAULTS["nobody there"].inflict(proxy)
        limiter.refund(decision)
        (record,) = [record for record in caplog.records if "refund was lost" in record.getMessage()]
        assert (record.name, record.levelno) == ("headgate", logging.WARNING)
        heal(proxy)
        limiter.refund(decision)
    assert spent(server) == 5


def test_a_lost_refund_raises_for_who_asked_for_errors(server):
    """`on_error="raise"` makes it a `StoreError`."""
    with limiter_on(server.url, on_error="raise") as limiter:
        decision = limiter.hit("k")
        with in_trouble(server, "killed"), pytest.raises(StoreError, match="give back"):
            limiter.refund(decision)


def test_what_was_answered_meanwhile_is_never_given_back_to_the_server(server, proxy):
    """The refund of a decision that `on_error` took does not reach the server."""
    with limiter_on(proxy.url) as limiter:
        limiter.hit("k", 7)
        proxy.drop_reply()
        limiter.refund(limiter.hit("k", 5))
    assert spent(server) == 12


@pytest.mark.parametrize("on_error", POLICIES)
def test_a_reset_that_fails_is_an_error_under_every_policy(server, on_error):
    """A reset is a `StoreError` where the server is away, whatever `on_error` says."""
    with (
        in_trouble(server, "killed") as url,
        limiter_on(url, on_error=on_error) as limiter,
        pytest.raises(StoreError, match="not reset"),
    ):
        limiter.reset("k")


def remainders(limiter: Limiter, key: str) -> list[int]:
    return [-1 if decision.degraded else decision.remaining for decision in (limiter.hit(key) for _ in range(200))]


EACH = list(range(9_999, 9_799, -1))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_shares_no_connection_with_its_parent(server):
    """Parent and child hit at the same time, and each reads its own replies."""
    with limiter_on(server.url, deadline=5) as limiter:
        limiter.hit("before")
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writes, json.dumps(remainders(limiter, "child")).encode())
            finally:
                os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as answers:
            mine, its = remainders(limiter, "parent"), json.load(answers)
        os.waitpid(child, 0)
    assert (mine, its) == (EACH, EACH)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_processes_of_multiprocessing_share_no_connection(server):
    """Three children and their parent each read their own replies."""
    fork = multiprocessing.get_context("fork")
    with limiter_on(server.url, deadline=5) as limiter:
        limiter.hit("before")
        answers = fork.SimpleQueue()
        keys = [(key,) for key in "abc"]
        children = [fork.Process(target=lambda key: answers.put(remainders(limiter, key)), args=key) for key in keys]
        for child in children:
            child.start()
        got = [remainders(limiter, "parent"), *(answers.get() for _ in children)]
        for child in children:
            child.join()
    assert got == [EACH] * 4


def test_the_first_degraded_answer_says_when_the_link_is_slower_than_the_deadline(proxy, caplog):
    """Once: the operator of a distant server learns which option to change."""
    with Limiter("5/minute", store=f"{proxy.url}?deadline=0.05") as limiter:
        assert not limiter.hit("k").degraded
        proxy.delay(0.2)
        assert [limiter.hit("k").degraded for _ in range(2)] == [True, True]
    told = [line for line in caplog.messages if "gave no answer within the deadline" in line]
    assert len(told) == 1 and "?deadline=0.5" in told[0]
