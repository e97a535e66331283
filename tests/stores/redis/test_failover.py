"""The Redis store when primaries die: found again without help, and what was replicated counts, unit for unit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.sentinel import Sentinel

from headgate import Limiter, StoreError
from headgate.stores import Store
from headgate.stores.redis.names import Names
from tests.support.clusters import Cluster, SentinelSet
from tests.support.remote import awaited, patient
from tests.support.servers import BINARIES, Server, wait_until

pytestmark = pytest.mark.engineless


def hits_until_refused(limiter: Limiter, key: str, admitted: list[float], pause: float = 0.0) -> int:
    """How many are admitted before the first no, written down one by one; what fails is tried again."""
    end, before = time.monotonic() + 30, len(admitted)
    while time.monotonic() < end:
        try:
            if not limiter.hit(key):
                return len(admitted) - before
            admitted.append(time.monotonic())
            time.sleep(pause)
        except StoreError:
            time.sleep(0.005)
    raise TimeoutError("never recovered")


def keys_at(group: Cluster | SentinelSet, primary: Server) -> Iterator[str]:
    """Keys that live on this primary."""
    keys = map("key {}".format, itertools.count())
    if isinstance(group, SentinelSet):
        return keys
    names = Names("default", b"")
    return (key for key in keys if group.primary_of(group.slot_of(names.subject(key))) is primary)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_a_failover_is_survived_without_help(kind):
    """Threads and coroutines go on. Quiet keys are exact; a busy one gains at most what the replica had not got."""
    group: Cluster | SentinelSet = Cluster() if kind == "cluster" else SentinelSet()
    with group, ThreadPoolExecutor() as pool, awaited(patient(group.url)) as waiting:
        victim = group.primaries[0] if isinstance(group, Cluster) else group.primary
        *keys, busy = itertools.islice(keys_at(group, victim), 3)
        homes: list[Store] = [patient(group.url), waiting]
        limiters = [Limiter("200/4 weeks by fixed-window", store=home, on_error="raise") for home in homes]
        for limiter, key in zip(limiters, keys, strict=True):
            assert all(limiter.hit(key) for _ in range(120))
        seen: list[float] = []
        stormy = Limiter("500/4 weeks", store=homes[0], on_error="raise")
        storm = pool.submit(hits_until_refused, stormy, busy, seen, 0.001)
        wait_until(lambda: len(seen) > 10, "the busy key is in use")
        replicated = len(seen)
        assert victim.command("WAIT", 1, 5000) == 1
        failing = pool.submit(group.fail_over, *([victim] if isinstance(group, Cluster) else []))
        wait_until(lambda: not victim.running, "the primary is dead")
        at_risk = len(seen) - replicated
        jobs = [pool.submit(hits_until_refused, *each, []) for each in zip(limiters, keys, strict=True)]
        failing.result(60)
        assert [job.result(60) for job in jobs] == [80, 80]
        assert 499 <= storm.result(60) <= 500 + at_risk  # one that was charged may not have been heard of


@pytest.mark.parametrize("binary", BINARIES)
def test_a_primary_that_became_a_replica_is_left(binary):
    """The two are swapped by hand and nobody hangs up: it says that it may not write, and no decision fails."""
    with SentinelSet(binary=binary) as group, awaited(patient(group.url)) as waiting:
        limiters = [Limiter("200/4 weeks", store=home, on_error="raise") for home in (patient(group.url), waiting)]
        assert [limiter.hit("k", 60).remaining for limiter in limiters] == [140, 80]
        assert group.primary.command("WAIT", 1, 5000) == 1
        for sentinel in group.sentinels:
            sentinel.command("SENTINEL", "REMOVE", group.service)
        group.replica.command("REPLICAOF", "NO", "ONE")
        group.primary.command("REPLICAOF", "127.0.0.1", group.replica.port)
        for sentinel in group.sentinels:
            sentinel.command("SENTINEL", "MONITOR", group.service, "127.0.0.1", group.replica.port, 2)
        assert sum(limiter.hit("k").allowed for _ in range(50) for limiter in limiters) == 80


def test_a_ready_sentinel_client_will_do():
    """A client of redis-py counts where a URL of the same service does."""
    with SentinelSet() as group:
        hosts = [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]
        client = Sentinel(hosts).master_for(group.service)
        assert Limiter("10/hour", store=patient(client), on_error="raise").hit("k", 4).remaining == 6
        assert Limiter("10/hour", store=patient(group.url), on_error="raise").hit("k", 4).remaining == 2
