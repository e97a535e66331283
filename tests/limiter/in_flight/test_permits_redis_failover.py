"""Permits on servers that restart, fail over or are a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from headgate import AsyncLimiter, Call, Decision, Limit, Limiter, StoreError
from headgate.stores.redis import RedisStore
from headgate.stores.redis.connect import slot_of
from headgate.stores.redis.names import Names
from tests.limiter.in_flight.test_permits_redis import LOST, ends_at, limiter_at, now_at, outlive, url_of
from tests.support.clusters import Cluster, SentinelSet
from tests.support.faults import open_store
from tests.support.holding import Crowd, Holder
from tests.support.remote import patient
from tests.support.servers import Server, wait_until

pytestmark = [pytest.mark.engineless, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


def test_a_server_that_forgets_everything_gives_away_once_more_what_was_held_and_not_again():
    """The limit and the lost permits are then in flight; a process that lost some is told, and frees no others."""
    text = "3 in flight ttl 1s"
    with Server() as server, Holder(url_of(server), text) as holder, open_store(url_of(server)) as store:
        assert holder.take(2) == 2
        server.kill()
        server.start()
        limiter = limiter_at(store, text)
        assert limiter.take_up_to("k", 5).granted == 3
        assert not limiter.hit("k")
        wait_until(lambda: any(LOST in line for line in holder.tell("said")), "it has tried to renew")
        assert holder.tell("release") == [True, True]
        assert not limiter.hit("k") and holder.take() == 0
        assert len(ends_at(server, text)) == 3


def test_a_restart_under_load_lets_in_no_more_than_the_limit_and_what_was_lost(tmp_path):
    """The server forgets the permits that are held, at most the limit. Then the count is exact again."""
    text = "3 in flight ttl 2s"
    with Server() as server:
        with Crowd(url_of(server), text, tmp_path / "lossy", most=3 + 3, places=6, longest=0.6) as crowd:
            crowd.start(6, seconds=1.2)
            wait_until(lambda: min(crowd.admitted) > 0, "each worker has had a permit")
            server.kill()
            server.start()
            crowd.join()
            assert crowd.violations == 0
        with Crowd(url_of(server), text, tmp_path / "exact", most=3, places=6, longest=0.01) as crowd:
            crowd.start(6, seconds=0.5)
            crowd.join()
            assert (crowd.violations, min(crowd.admitted) > 0) == (0, True)


def test_a_failover_under_load_loses_at_most_what_was_not_replicated(tmp_path):
    """Of a quiet key nothing: it is as full as before. Of a busy one at most the limit, for as long as it is held."""
    quiet, busy = "3 in flight ttl 15s as quiet", "3 in flight ttl 1s as busy"
    with (
        SentinelSet() as group,
        Holder(f"{group.url}?deadline=5", quiet) as holder,
        open_store(f"{group.url}?deadline=5") as store,
        Crowd(f"{group.url}?deadline=0.25", busy, tmp_path / "witness", most=3 + 3, places=4, longest=0.01) as crowd,
    ):
        assert holder.take(2) == 2
        crowd.start(4, seconds=60)
        crowd.wait_for(50)
        assert group.primary.command("WAIT", 1, 5000) == 1
        group.fail_over()
        crowd.wait_for(50)
        assert crowd.violations == 0
        limiter = limiter_at(store, quiet)
        wait_until(lambda: answers(limiter), "the new primary is found")
        assert limiter.peek("k", 0).remaining == 1
        ends = max(ends_at(group.primary, quiet))
        wait_until(lambda: max(ends_at(group.primary, quiet)) > ends, "the leases are renewed there", 10)
        assert holder.tell("release") == [True, True]
        assert limiter.hit("k", 3)


def answers(limiter: Limiter) -> bool:
    try:
        return not limiter.peek("k", 0).degraded
    except StoreError:
        return False


def test_on_a_cluster_permits_are_taken_together_and_renewed_wherever_they_are():
    """Over many slots, of which one moves; where one refuses nothing is kept."""
    with Cluster(replicas=False, node_timeout=15_000) as cluster, open_store(url_of(cluster)) as store:
        for decide in (decide_by_thread, decide_by_task):
            see_what_a_refusal_leaves(store, partial(decide, cluster))
        see_leases_renewed(cluster, store)


def decide_by_thread(cluster: Cluster, calls: list[Call]) -> Decision:
    with open_store(url_of(cluster)) as store:
        return limiter_at(store, "1 in flight").decide(*calls)


def decide_by_task(cluster: Cluster, calls: list[Call]) -> Decision:
    async def decide() -> Decision:
        store = patient(cluster.url)
        decision = await AsyncLimiter("1 in flight", store=store, on_error="raise").decide(*calls)
        await store.aclose()
        return decision

    return asyncio.run(decide())


def see_what_a_refusal_leaves(store: RedisStore, decide: Callable[[list[Call]], Decision]) -> None:
    limit, keys = Limit.parse("2 in flight ttl 15s"), [f"key {number}" for number in range(6)]
    limiter = limiter_at(store, str(limit))
    permit = limiter.permit("key 3", 2)
    assert not decide([Call(limit, key) for key in keys])
    assert [limiter.peek(key, 0).remaining for key in keys] == [2, 2, 2, 0, 2, 2]
    assert permit.release()
    assert decide([Call(limit, key) for key in keys])
    assert [limiter.peek(key, 0).remaining for key in keys] == [1] * 6
    for key in keys:
        limiter.reset(key)


def see_leases_renewed(cluster: Cluster, store: RedisStore) -> None:
    names, keys = Names("default", b""), [f"key {number}" for number in range(30)]
    limiter = limiter_at(store, "2 in flight ttl 1s")
    permits = [limiter.permit(key, 2) for key in keys]
    slots = [slot_of(names.subject(key)) for key in keys]
    home = cluster.primary_of(slots[0])
    assert len({cluster.primary_of(slot).port for slot in slots}) == 3
    cluster.move_slot(slots[0], cluster.other_than(home))
    outlive(home, [now_at(home) + 1.2])
    assert [limiter.peek(key, 0).remaining for key in keys] == [0] * 30
    assert all(permit.release() for permit in permits)
    assert [limiter.peek(key, 0).remaining for key in keys] == [2] * 30
