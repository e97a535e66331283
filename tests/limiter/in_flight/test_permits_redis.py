"""Permits on real servers: leases by the server's clock, renewed while their holder lives, and never counted twice."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate import AsyncLimiter, Limit, Limiter, StoreError
from headgate.stores.redis import RedisStore
from headgate.stores.redis.names import Names
from tests.support.awaiting import awaited
from tests.support.clusters import Cluster, SentinelSet
from tests.support.faults import PATIENT, open_store
from tests.support.forks import in_child
from tests.support.holding import Crowd, Holder
from tests.support.inside import renewal_of, topology_of
from tests.support.remote import asked, patient
from tests.support.servers import Server, wait_until

pytestmark = [pytest.mark.engineless, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

LOST = "were lost: their leases had ended"


def url_of(server: Server | SentinelSet | Cluster) -> str:
    """With much time and no memory, so that every answer is a server's."""
    return f"{server.url}?deadline=5&connect_timeout=5&remember_refusals=0"


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    store = patient(server.url)
    yield store
    store.close()


def limiter_at(store: RedisStore | str, text: str, **options: object) -> Limiter:
    return Limiter(text, store=store, **{"on_error": "raise", **options})


def now_at(server: Server) -> float:
    seconds, micros = server.command("TIME")
    return int(seconds) + int(micros) / 1e6


def ends_at(server: Server, text: str, key: str = "k") -> list[float]:
    """When the leases of what is in flight end, by the server's clock: each unit's, read on a way of its own."""
    names, now = Names("default", b""), now_at(server)
    name = names.subject(key) + names.suffix(Limit.parse(text.partition(";")[0]))
    scores = server.command("ZRANGE", name, 0, -1, "WITHSCORES")[1::2]
    return [ends for score in scores if (ends := float(score) / 1e6) > now]


def outlive(server: Server, ends: list[float], seconds: float = 0.0) -> None:
    """Return so long after the leases would have ended, had nobody renewed them."""
    wait_until(lambda: now_at(server) > max(ends) + seconds, "the leases would have ended")


def test_ten_killed_holders_free_their_permits_when_their_leases_end(server, store):
    """Permits come back within a lease, and not before half of one, which a living process always has left."""
    text = "20 in flight ttl 800ms"
    limiter = limiter_at(store, text)
    with ExitStack() as stack:
        holders = [stack.enter_context(Holder(url_of(server), text)) for _ in range(10)]
        assert [holder.take(2) for holder in holders] == [2] * 10
        outlive(server, ends_at(server, text), -0.2)
        assert len(limiter.holders("k")) == 20 and not limiter.permit("k")
        killing = now_at(server)
        for holder in holders:
            holder.kill()
        dead, ends = now_at(server), ends_at(server, text)
        assert killing + 0.4 <= min(ends) and max(ends) <= dead + 0.8
        wait_until(lambda: limiter.peek("k"), "the first is free")
        assert now_at(server) >= min(ends)
        wait_until(lambda: limiter.peek("k", 20), "all are free")


def test_what_exits_without_a_release_is_free_when_its_lease_ends_and_its_rates_stay_charged(server, store):
    """The permits of a process that has ended are free after their lease; its rates stay charged."""
    text = "2 in flight ttl 500ms; 10/4 weeks by fixed-window"
    limiter = limiter_at(store, text)
    with Holder(url_of(server), text) as holder:
        assert holder.take(1, cost=2) == 1
        holder.exit()
    with limiter.permit("k", timeout=PATIENT) as permit:
        assert [verdict.remaining for verdict in permit.decision.verdicts] == [1, 7]


def test_whatever_a_process_holds_is_renewed_by_one_call_a_time(server, store):
    """A hundred permits of twenty keys, two limiters and two namespaces, for two lives of a lease and more."""
    text = "50 in flight ttl 600ms"
    limiters = [limiter_at(store, text), limiter_at(store, f"9/second burst 99; {text}", namespace="other")]
    permits = [limiters[number % 2].permit(f"k{number % 20}") for number in range(100)]
    assert all(permits)
    first, before, start = ends_at(server, text, "k0"), asked(server), time.monotonic()
    outlive(server, first, 0.7)
    calls, ticks = asked(server) - before, (time.monotonic() - start) / 0.15
    assert 4 <= calls <= ticks + 1
    assert [len(limiters[number % 2].holders(f"k{number}")) for number in range(20)] == [5] * 20
    assert all(permit.release() for permit in permits)
    assert [limiters[number % 2].peek(f"k{number}", 50).verdicts[-1].allowed for number in range(20)] == [True] * 20


def test_more_than_a_thousand_permits_are_renewed_a_thousand_at_a_time(server, store):
    """1500 permits outlive their lease, for two commands each time they are renewed."""
    text = "1500 in flight ttl 600ms"
    limiter = limiter_at(store, text)
    assert all(limiter.hit("k") for _ in range(1500))
    first, before, start = ends_at(server, text), asked(server), time.monotonic()
    assert len(first) == 1500
    outlive(server, first)
    assert asked(server) - before <= 2 * ((time.monotonic() - start) / 0.15 + 1)
    assert len(ends_at(server, text)) == 1500


@pytest.mark.parametrize("before", ["a longer one is held", "nothing is held any more"])
def test_a_short_lease_is_renewed_in_time_whatever_was_held_before(server, store, before):
    """The thread that renews sleeps until the next renewal is due, and is woken for one that is due sooner."""
    text = "1 in flight ttl 600ms as short"
    limiter, other = limiter_at(store, text), limiter_at(store, "1 in flight ttl 30s as long")
    if before == "a longer one is held":
        assert other.hit("k")
    else:
        with limiter.permit("another"):
            wait_until(lambda: renewal_of(store).pause == 0.15, "it is held")
        wait_until(lambda: renewal_of(store).pause == 1.0, "nothing is held any more")
    assert limiter.hit("k")
    outlive(server, ends_at(server, text), 0.3)
    assert len(ends_at(server, text)) == 1


@awaited
async def test_permits_of_an_event_loop_are_renewed_even_while_it_is_blocked(server):
    """A loop that is blocked beyond the lease keeps its permits."""
    text = "2 in flight ttl 500ms"
    store = patient(server.url)
    limiter = AsyncLimiter(text, store=store, on_error="raise")
    async with limiter.permit("k"):
        await asyncio.to_thread(outlive, server, ends_at(server, text))
        decision = await limiter.acquire("k")
        assert [each.own for each in await limiter.holders("k")] == [True, True]
        outlive(server, ends_at(server, text))  # in this thread: nothing else runs
        assert len(ends_at(server, text)) == 2
        await limiter.release(decision)
    assert (await limiter.peek("k", 2)).allowed
    await store.aclose()


def test_a_holder_that_was_stopped_for_longer_than_its_lease_has_lost_its_place(server, store):
    """Others were given it. What the returning process renews and releases changes nothing, and it is told."""
    text = "2 in flight ttl 1s"  # a busy machine may keep this process, too, from renewing for half a second
    limiter = limiter_at(store, text)
    with Holder(url_of(server), text) as holder:
        assert holder.take(2) == 2
        holder.stop()
        assert limiter.acquire("k", 2, timeout=30.0)
        ours = ends_at(server, text)
        holder.go_on()
        wait_until(lambda: any(LOST in line for line in holder.tell("said")), "it has tried to renew")
        assert holder.tell("own", "k") == [False]
        assert holder.tell("release") == [True, True]
        outlive(server, ours)
        assert [each.units for each in limiter.holders("k")] == [2]
        assert not limiter.permit("k") and holder.take() == 0
        assert sum("were lost" in line for line in holder.tell("said")) == 1


def test_a_lease_that_has_ended_does_not_come_back_even_where_nobody_was_given_the_place(server, store):
    """The server still has it beside what we hold: nobody was there to remove it."""
    text = "3 in flight ttl 500ms"
    limiter = limiter_at(store, text)
    assert limiter.hit("k")
    with Holder(url_of(server), text) as holder:
        assert holder.take(2) == 2
        holder.stop()
        wait_until(lambda: limiter.peek("k", 2), "the leases have ended")
        holder.go_on()
        wait_until(lambda: any(LOST in line for line in holder.tell("said")), "it has tried to renew")
        assert len(ends_at(server, text)) == 1
        assert limiter.hit("k", 2)
        assert holder.tell("release") == [True, True]
        assert not limiter.permit("k")


def test_whoever_releases_after_its_lease_has_ended_frees_nobody_elses(server):
    """Its own renewals are switched off: here the release is the first to find out."""
    text = "1 in flight ttl 200ms"
    with open_store(url_of(server)) as first, open_store(url_of(server)) as second:
        late = limiter_at(first, text).permit("k")
        first.close()
        assert limiter_at(second, text).acquire("k", timeout=1.0)
        assert late.release() and not late.release()
        assert len(ends_at(server, text)) == 1
        assert not limiter_at(second, text).permit("k")


def test_a_forked_child_neither_holds_nor_frees_nor_renews_what_its_parent_holds(server, store):
    """A child's release of its parent's permits frees nothing, and its own permits end with their lease."""
    text = "3 in flight ttl 600ms"
    limiter = limiter_at(store, text)
    parents = [limiter.permit("k"), limiter.permit("k")]

    def work() -> list[object]:
        own = [limiter.permit("k"), limiter.permit("k")]
        ended = [permit.release() for permit in parents]
        return [[bool(each) for each in own], ended, [each.own for each in limiter.holders("k")]]

    assert in_child(work) == [[True, False], [True, True], [False, False, True]]
    assert limiter.acquire("k", timeout=1.5)
    assert [each.own for each in limiter.holders("k")] == [True, True, True]
    assert [permit.release() for permit in parents] == [True, True]
    assert limiter.peek("k", 2) and not limiter.peek("k", 3)


def test_a_child_that_outlives_its_parent_renews_its_own_permits_and_not_the_parents(server, store):
    """The parent's permits end with their lease, the child's go on until it is killed."""
    text = "4 in flight ttl 500ms"
    limiter = limiter_at(store, text)
    with Holder(url_of(server), text) as holder:
        assert holder.take(2) == 2
        child, taken = holder.tell("fork", 1)
        try:
            assert taken == 1
            holder.kill()
            outlive(server, ends_at(server, text), 0.2)
            assert limiter.peek("k", 0).remaining == 3
        finally:
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: limiter.peek("k", 4), "the child's lease has ended", 1.0)


def test_a_closed_store_renews_nothing_until_it_is_used_again(server):
    """Leases of a closed store end; a store that is used again renews all that is still held."""
    text = "3 in flight ttl 2s"
    store, other = patient(server.url), patient(server.url)
    limiter, looking = limiter_at(store, text), limiter_at(other, text)
    kept, lost, back = limiter.permit("k"), limiter.permit("lost"), limiter.permit("back")
    store.close()
    assert back.release()
    assert looking.peek("back", 3)
    assert limiter.permit("k")  # from here on everything that is still held is renewed again
    outlive(server, ends_at(server, text), 0.2)
    assert looking.peek("k", 0).remaining == 1
    store.close()
    wait_until(lambda: looking.peek("lost", 3) and looking.peek("k", 3), "the leases have ended")
    assert kept.release() and lost.release()
    for each in (store, other):
        each.close()


def test_a_server_that_forgets_its_scripts_renews_and_takes_back_all_the_same(server, store):
    """Renewals and releases send their scripts again after a flush."""
    text = "2 in flight ttl 500ms"
    limiter = limiter_at(store, text)
    permit = limiter.permit("k", 2)
    for _ in range(2):
        server.client().script_flush()
        outlive(server, ends_at(server, text))
    assert len(ends_at(server, text)) == 2
    server.client().script_flush()
    assert permit.release()
    assert limiter.permit("k", 2)


def test_what_renews_goes_on_after_a_failure_that_nobody_foresaw(server, store, monkeypatch):
    """An exception in one renewal does not stop the next one."""
    text = "1 in flight ttl 500ms"
    limiter = limiter_at(store, text)
    assert limiter.hit("k")
    exchange, fails = topology_of(store).exchange, itertools.chain([RuntimeError("unforeseen")], itertools.repeat(None))

    def failing(command):
        if error := next(fails):
            raise error
        return exchange(command)

    monkeypatch.setattr(topology_of(store), "exchange", failing)
    outlive(server, ends_at(server, text), 0.3)
    assert len(ends_at(server, text)) == 1


def warm(limiter: Limiter, key: str = "warm") -> None:
    """Let the server know the scripts: what has to be sent again would meet another fault."""
    with limiter.permit(key):
        pass


def test_a_permit_whose_answer_was_lost_is_free_when_its_lease_ends(server, store, proxy):
    """A permit that nobody was told of is not renewed."""
    text = "1 in flight ttl 500ms"
    with open_store(proxy.url, remember_refusals=0) as far:
        limiter, near = limiter_at(far, text, on_error="deny"), limiter_at(store, text)
        warm(limiter)
        proxy.drop_reply()
        refused = limiter.permit("k")
        assert refused.decision.degraded and not refused
        assert not refused.release()
        assert not near.permit("k")  # the server has given it away, and nobody knows
        assert near.permit("k", timeout=1.0)


def test_a_permit_whose_release_was_lost_is_free_when_its_lease_ends(server, store, proxy):
    """It is not renewed any more, as others of this process are."""
    text = "1 in flight ttl 500ms"
    with open_store(proxy.url, remember_refusals=0) as far:
        limiter, near = limiter_at(far, text), limiter_at(store, text)
        permit = limiter.permit("k")
        assert limiter.hit("other")
        proxy.refuse()
        proxy.reset()
        with pytest.raises(StoreError, match="give back"):
            permit.release()
        proxy.accept()
        assert near.permit("k", timeout=1.0)
        assert not near.permit("other")


def test_a_release_that_arrives_late_frees_nobody_elses(server, store, proxy):
    """A release that is delayed beyond the lease does not touch the permit of the next holder."""
    text = "1 in flight ttl 500ms"
    with open_store(proxy.url, remember_refusals=0) as far:
        limiter, near = limiter_at(far, text), limiter_at(store, text)
        warm(limiter)
        permit = limiter.permit("k")
        proxy.hold_requests()
        with pytest.raises(StoreError, match="give back"):
            permit.release()
        assert not permit.release()
        assert near.acquire("k", timeout=1.5)
        arrived = asked(server)
        proxy.release()
        wait_until(lambda: asked(server) > arrived, "the release arrives after all")
        assert not near.permit("k")


def test_renewals_that_arrive_late_bring_nothing_back(server, store, proxy):
    """A renewal that is delayed beyond the lease does not take the permit of the next holder."""
    text = "1 in flight ttl 500ms"
    with open_store(proxy.url, remember_refusals=0) as far:
        limiter, near = limiter_at(far, text), limiter_at(store, text)
        warm(limiter)
        assert limiter.hit("k")
        outlive(server, ends_at(server, text))  # the renewing script is known by now
        proxy.hold_requests()
        decision = near.acquire("k", timeout=1.5)
        assert decision
        arrived = asked(server)
        proxy.release()
        wait_until(lambda: asked(server) > arrived, "renewals arrive after all")
        assert len(ends_at(server, text)) == 1
        near.release(decision)
        assert ends_at(server, text) == []


@pytest.mark.parametrize("outage", ["paused", "unreachable"])
def test_permits_survive_an_outage_that_is_shorter_than_their_lease(server, store, proxy, outage, caplog):
    """A renewal that fails is tried again, and no permit is lost."""
    text = "1 in flight ttl 1s"
    with open_store(proxy.url, deadline=0.05, remember_refusals=0) as far:
        limiter = limiter_at(far, text)
        assert limiter.hit("k")
        if outage == "paused":
            server.pause()
        else:
            proxy.refuse()
            proxy.reset()
        try:
            wait_until(lambda: "not renewed; the next attempt follows" in caplog.text, "a renewal has failed")
        finally:
            server.resume()
            proxy.accept()
        outlive(server, ends_at(server, text), 0.2)
        assert len(ends_at(server, text)) == 1
        assert LOST not in caplog.text


def test_eight_processes_never_hold_more_than_the_limit(server, store, tmp_path):
    """At any instant, as a witness sees it that has nothing to do with the limiter."""
    text = "3 in flight ttl 5s"
    with Crowd(url_of(server), text, tmp_path / "witness", most=3, places=8) as crowd:
        crowd.start(8, seconds=1.0, least=13)
        crowd.join()
        assert crowd.violations == 0
        assert min(crowd.admitted) > 0 and sum(crowd.admitted) > 100
    assert limiter_at(store, text).peek("k", 3)
