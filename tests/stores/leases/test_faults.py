"""Leases in threads, over broken wires, on servers that forget: nobody waits in vain, nothing uncharged is spent."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import StoreError
from headgate.stores import OnError
from headgate.stores.redis import RedisStore
from tests.support.clusters import Cluster
from tests.support.faults import FAULTS, POLICIES, at_most, heal, said
from tests.support.inside_leases import leases_held, ledger_of
from tests.support.leasing import BEFORE_LOW, EVERY_KIND, MOST, WINDOW, drain, open_bank, warm
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless

KINDS = pytest.mark.parametrize("kind", ["threads", "tasks"])


@EVERY_KIND
def test_threads_admit_exactly_the_limit(server, limit):
    """Four threads on two limiters admit the limit, and closing gives nothing back."""
    with open_bank(server) as bank, ThreadPoolExecutor(4) as pool:
        limiters = [bank.limiter(limit) for _ in range(2)]
        assert sum(pool.map(drain, limiters * 2)) + sum(map(drain, limiters)) == MOST
        assert bank.charged(limit) == MOST
        for limiter in limiters:
            limiter.close()
        assert bank.charged(limit) == MOST


def test_whatever_threads_do_the_server_is_charged_what_was_admitted(server):
    """Hits, refunds and peeks of four threads leave the server charged with what they spent."""

    def work(number: int) -> int:
        spent = 0
        for step in range(150):
            cost = (1, 1, 1, 2, 7, 1, 30)[(step + number) % 7]
            decision = limiter.hit("k", cost)
            spent += cost * decision.allowed
            if step % 10 == 0:
                limiter.peek("k", cost)
            if step % 6 == 0:
                limiter.refund(decision, 1)
                spent -= decision.allowed
        return spent

    with open_bank(server) as bank, ThreadPoolExecutor(4) as pool:
        limiter = bank.limiter("100000/hour by fixed-window")
        spent = sum(pool.map(work, range(4)))
        limiter.close()
        assert bank.charged("100000/hour by fixed-window") == spent


def test_while_one_thread_buys_the_others_spend_and_nobody_buys_twice(server, proxy):
    """Replies are held: the lease is charged once, and callers who find the old one spent wait for the new one."""
    with open_bank(server, url=proxy.url) as bank, ThreadPoolExecutor(4) as pool:
        limiter = bank.limiter(WINDOW)
        warm(limiter, hits=BEFORE_LOW)
        held = bank.charged(WINDOW)
        proxy.hold()
        buyer = pool.submit(limiter.hit, "k")
        wait_until(lambda: bank.charged(WINDOW) == held + 80, "the next lease is charged")
        with bank.asked(0):
            assert warm(limiter, hits=4) == 4
            others = [pool.submit(limiter.hit, "k") for _ in range(3)]
            waiting = leases_held(ledger_of(limiter))["k"]
            wait_until(lambda: waiting.waiting == 3, "the others wait for the answer")
        assert not buyer.done()
        proxy.release()
        assert all(each.result().allowed for each in (buyer, *others))
        limiter.close()
        assert bank.charged(WINDOW) == BEFORE_LOW + 8


def test_callers_that_wait_for_a_question_share_its_failure(server, proxy):
    """The connection is lost: the caller that asked and those that waited fail together, and nobody asks again."""
    with open_bank(server, url=proxy.url) as bank, ThreadPoolExecutor(4) as pool:
        limiter = bank.limiter(WINDOW)
        warm(limiter, hits=3)
        limiter.close()
        proxy.hold_requests()
        before = proxy.requests
        asking = [pool.submit(limiter.hit, "k")]
        wait_until(lambda: proxy.requests > before, "the question is sent")
        asking += [pool.submit(limiter.hit, "k") for _ in range(3)]
        held = leases_held(ledger_of(limiter))["k"]
        wait_until(lambda: held.waiting == 3, "the others wait for the answer")
        asked = proxy.requests
        proxy.reset()
        assert [type(each.exception()) for each in asking] == [StoreError] * 4
        assert proxy.requests == asked


def prepare(limiter) -> None:
    """Let the server know every script: while replies are held, what has to be sent again does not arrive."""
    warm(limiter, "other")
    limiter.reset("other")


def answers(limiter, on_error: OnError, share: int = MOST) -> None:
    """As it does without a server, and for the first time."""
    expected = {"local": (True, True, share - 1, 0.0), "allow": (True, True, MOST, 0.0), "deny": (True, False, 0, 1.0)}
    if on_error == "raise":
        with pytest.raises(StoreError):
            limiter.hit("k")
    else:
        assert said(limiter.hit("k")) == expected[on_error]


@pytest.mark.parametrize(
    ("fault", "on_error"), [*(("nobody there", policy) for policy in POLICIES), ("replies held", "local")]
)
@KINDS
def test_without_a_server_what_is_leased_is_spent_and_then_the_policy_answers(server, proxy, kind, fault, on_error):
    """Tokens that were bought stay good without the server; after them `on_error` answers."""
    with open_bank(server, kind, url=proxy.url, deadline=1.0) as bank:
        limiter = bank.limiter(WINDOW, on_error=on_error)
        warm(limiter, hits=BEFORE_LOW)
        held = bank.charged(WINDOW) - BEFORE_LOW
        FAULTS[fault].inflict(proxy)
        assert [said(limiter.hit("k"))[:2] for _ in range(held)] == [(False, True)] * held
        answers(limiter, on_error)
        heal(proxy)


@pytest.mark.parametrize("on_error", POLICIES)
@KINDS
def test_without_a_server_what_is_void_is_not_spent(server, proxy, kind, on_error):
    """Tokens whose time is over are not spent, though the server is away: `on_error` answers."""
    with open_bank(server, kind, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error=on_error)
        warm(limiter)
        FAULTS["nobody there"].inflict(proxy)
        bank.clock.advance(1)
        answers(limiter, on_error)
        heal(proxy)


@KINDS
def test_the_next_lease_pays_alone_once_the_one_before_is_void(server, proxy, kind):
    """The four tokens that the first had left are not spent with it."""
    with open_bank(server, kind, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error="deny")
        warm(limiter, hits=BEFORE_LOW)
        charged = bank.charged(WINDOW)
        bank.clock.advance(0.5)
        warm(limiter, hits=1)
        bank.until(lambda: bank.charged(WINDOW) > charged, "the next lease is charged")
        FAULTS["nobody there"].inflict(proxy)
        bank.clock.advance(0.5)
        assert limiter.hit("k", 10).allowed
        assert 10 + drain(limiter) == bank.charged(WINDOW) - charged
        heal(proxy)


@KINDS
def test_no_hit_waits_for_more_than_one_deadline(server, proxy, kind):
    """A hit does not wait for a purchase, then for the exact answer, then for the units that are given back."""
    with open_bank(server, kind, url=proxy.url, deadline=1.0) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter, "void")
        bank.clock.advance(0.5)
        warm(limiter, "low", hits=BEFORE_LOW)
        bank.clock.advance(0.5)
        proxy.hold()
        with at_most(2.0):
            assert not limiter.hit("low").degraded
        with at_most(2.0), pytest.raises(StoreError):
            limiter.hit("void")
        proxy.release()


@KINDS
def test_when_the_server_is_back_every_key_starts_from_single_permits(server, proxy, kind):
    """A key that was hot is asked for one by one again after an outage."""
    with open_bank(server, kind, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error="deny")
        warm(limiter, hits=1000)
        limiter.close()
        FAULTS["nobody there"].inflict(proxy)
        assert limiter.hit("k").degraded
        heal(proxy)
        for hits in (1, 2):
            assert limiter.hit("k").allowed
            assert bank.charged(WINDOW) == 1000 + hits
        limiter.hit("k")
        assert bank.charged(WINDOW) <= 1000 + 3 + 4


@pytest.mark.parametrize("fault", ["no reply", "half a reply"])
@KINDS
def test_permits_whose_reply_is_lost_are_never_spent(server, proxy, kind, fault):
    """The server keeps them charged, nobody spends them, and leases go on."""
    with open_bank(server, kind, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter, hits=BEFORE_LOW)
        charged = bank.charged(WINDOW)
        FAULTS[fault].inflict(proxy)
        assert limiter.hit("k").allowed
        bank.until(lambda: not proxy.open_connections, "the wire is cut")
        assert bank.charged(WINDOW) == charged + 80
        before = bank.trips()
        assert BEFORE_LOW + 1 + drain(limiter) == MOST - 80
        assert bank.trips() - before < 200  # leases go on
        assert bank.charged(WINDOW) == MOST


@KINDS
def test_a_lease_that_arrives_after_its_time_is_given_back_unspent(server, proxy, kind):
    """A reply that is late is worth one hit; the rest goes back."""
    with open_bank(server, kind, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error="deny")
        prepare(limiter)
        warm(limiter, hits=2)
        proxy.hold()

        def let_it_be_late() -> None:
            wait_until(lambda: bank.charged(WINDOW) == 7, "a lease is charged")
            bank.clock.advance(1)
            proxy.release()

        moving = threading.Thread(target=let_it_be_late)
        moving.start()
        assert limiter.hit("k").allowed
        moving.join()
        limiter.close()
        assert bank.charged(WINDOW) == 3


def test_a_purchase_that_a_reset_overtakes_is_never_spent(server, proxy):
    """Its charge is gone: what it brought would be spent on top of the limit."""
    with open_bank(server, url=proxy.url) as bank, ThreadPoolExecutor(2) as pool:
        limiter = bank.limiter(WINDOW)
        prepare(limiter)
        warm(limiter, hits=2)
        proxy.hold()
        hit = pool.submit(limiter.hit, "k")
        wait_until(lambda: bank.charged(WINDOW) == 7, "a lease is charged")
        reset = pool.submit(limiter.reset, "k")
        wait_until(lambda: bank.charged(WINDOW) == 0, "and forgotten")
        proxy.release()
        reset.result()
        assert hit.result().allowed
        assert bank.charged(WINDOW) + drain(limiter) == MOST


@KINDS
def test_scripts_flushed_under_leases_are_sent_again_and_nothing_is_lost(server, kind):
    """500 hits between twenty flushes are charged as 500."""
    with open_bank(server, kind) as bank:
        limiter = bank.limiter(WINDOW)
        for _ in range(20):
            warm(limiter, hits=25)
            server.client().script_flush()
        limiter.close()
        assert bank.charged(WINDOW) == 500


@KINDS
def test_a_server_that_forgot_everything_admits_the_limit_and_what_was_held(server, kind):
    """After a flush the process spends its lease, and then the whole limit."""
    with open_bank(server, kind) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter)
        held = bank.charged(WINDOW) - 50
        server.client().flushall()
        assert drain(limiter) == held + MOST


def test_a_server_that_is_restarted_is_leased_from_again():
    """A server without its data sells the whole limit anew."""
    with Server(tcp=True) as server, open_bank(server) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter)
        held = bank.charged(WINDOW) - 50
        server.restart()
        bank.store.close()
        assert drain(limiter) == held + MOST


@pytest.mark.parametrize("configured", [1, 2, 4])
@KINDS
def test_each_who_is_cut_off_admits_its_share_by_the_last_census(server, proxy, kind, configured):
    """A process that loses the server admits the limit divided by the processes it last knew of."""
    with open_bank(server, kind, url=proxy.url, nodes=configured) as bank:
        others = [RedisStore(server.url, clock=bank.clock, deadline=5.0) for _ in range(2)]
        limiter = bank.limiter(WINDOW, on_error="local")
        warm(limiter)
        with open_bank(server) as elsewhere:
            for store in others:
                warm(elsewhere.limiter(WINDOW, store=store))
        bank.clock.advance(5)
        warm(limiter)
        FAULTS["nobody there"].inflict(proxy)
        bank.clock.advance(1)
        answers(limiter, "local", MOST // max(3, configured))
        heal(proxy)
        for store in others:
            store.close()


@KINDS
def test_a_process_says_that_it_is_there_about_every_five_seconds(server, kind):
    """18 seconds of traffic cost five heartbeats: one at once, one soon after it, and then one every five seconds."""
    with open_bank(server, kind) as bank:
        limiter = bank.limiter("1000000/hour by fixed-window")
        server.command("CONFIG", "RESETSTAT")
        for _ in range(20):
            warm(limiter, hits=1000)
            bank.until(lambda: True, "replies that are there are read")
            bank.clock.advance(0.9)
        assert server.info("commandstats")["cmdstat_zadd"]["calls"] == 5


@pytest.fixture(scope="module")
def cluster():
    with Cluster(replicas=False) as cluster:
        yield cluster


@KINDS
def test_a_cluster_sells_leases_too(cluster, kind):
    """Keys on every node are leased, charged exactly and drained to the limit."""
    for node in cluster.primaries:
        node.client().flushall()
    with open_bank(cluster, kind) as bank:
        limiter = bank.limiter(WINDOW)
        keys = [f"k{number}" for number in range(12)]
        for key in keys:
            assert warm(limiter, key, hits=200) == 200
        limiter.close()
        assert {bank.charged(WINDOW, key) for key in keys} == {200}
        assert drain(limiter, "all") == MOST
