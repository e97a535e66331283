"""What was leased and not spent comes back by itself, whether or not anybody asks again."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate import Lease, Limiter
from headgate.stores.leases import returns as module
from headgate.stores.redis import RedisStore
from tests.support.faults import DEADLINE, FAULTS, PATIENT, heal
from tests.support.inside import bound_of
from tests.support.leasing import BUCKET, WINDOW, held, open_bank, warm
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless

LIMIT = "3000/4 weeks by fixed-window"
BRIEF = Lease(validity=0.05)


@pytest.fixture
def open_store(server, monkeypatch) -> Iterator[Callable[..., RedisStore]]:
    """Stores by real time, as programs have them; an idle thread ends soon."""
    monkeypatch.setattr(module, "LINGER", 0.05)
    stores: list[RedisStore] = []

    def opened(url: str = server.url, **options: Any) -> RedisStore:
        stores.append(RedisStore(url, **{"deadline": PATIENT, **options}))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headgate-leases"]


def charged(store: RedisStore, key: str = "k", namespace: str = "default") -> int:
    return 3000 - Limiter(LIMIT, store=store, namespace=namespace, on_error="raise").peek(key, 0).remaining


@pytest.mark.parametrize(("limit", "hits"), [(BUCKET, 4), (WINDOW, 4), (WINDOW, 24), (WINDOW, 25), (WINDOW, 106)])
def test_a_lease_comes_back_at_the_instant_at_which_it_ends(server, limit, hits):
    """A clock that is moved by hand tells of the instant: no thread is started to wait."""
    before = workers()  # the thread of an earlier test may linger
    with open_bank(server) as bank:
        limiter = bank.limiter(limit, lease=Lease(validity=2))
        warm(limiter, hits=hits)
        unspent = held(limiter)
        assert bank.charged(limit) == hits + unspent > hits
        bank.clock.advance(1.999999)
        assert bank.charged(limit) == hits + unspent
        bank.clock.advance(0.000001)
        assert bank.charged(limit) == hits
        assert set(workers()) <= set(before)


def test_a_process_that_asks_no_more_gives_back_what_it_leased(open_store):
    """Unspent tokens go back when their lease ends, by a thread that ends with them and comes again."""
    store = open_store()
    limiter = Limiter(LIMIT, store=store, lease=BRIEF, on_error="raise")
    warm(limiter)
    assert charged(store) > 50
    wait_until(lambda: charged(store) == 50, "what was not spent is back")
    wait_until(lambda: not workers(), "with nothing to look after the thread ends")
    warm(limiter)
    wait_until(lambda: charged(store) == 100, "and comes again")


def test_one_thread_serves_every_limiter_of_a_process(open_store):
    """Four limiters on two stores are looked after by one thread."""
    stores = [open_store(), open_store()]
    limiters = [
        Limiter(LIMIT, store=store, lease=Lease(validity=0.3), namespace=f"{number}", on_error="raise")
        for number, store in enumerate(stores * 2)
    ]
    for limiter in limiters:
        warm(limiter)
    assert len(workers()) == 1
    names = [f"{number}" for number in range(4)]
    wait_until(lambda: [charged(stores[0], namespace=name) for name in names] == [50] * 4, "the rest is back")


def test_a_shorter_lease_does_not_wait_for_the_end_of_a_longer_one(open_store):
    """A brief lease is given back beside one of ten minutes, which closing gives back."""
    store = open_store()
    longer = Limiter(LIMIT, store=store, namespace="longer", lease=Lease(validity=600), on_error="raise")
    warm(longer)
    brief = Limiter(LIMIT, store=store, lease=BRIEF, on_error="raise")
    warm(brief)
    wait_until(lambda: charged(store) == 50, "what was not spent is back")
    assert charged(store, namespace="longer") > 50
    longer.close()
    brief.close()
    assert charged(store, namespace="longer") == 50
    wait_until(lambda: not workers(), "the thread ends when all are closed")


def test_a_limiter_that_nobody_knows_any_more_is_not_kept_alive(open_store):
    """The thread that gives back does not hold the limiter, and ends without it."""
    limiter = Limiter(LIMIT, store=open_store(), lease=Lease(validity=600), on_error="raise")
    warm(limiter)
    gate = weakref.ref(bound_of(limiter))
    del limiter
    gc.collect()
    assert gate() is None
    wait_until(lambda: not workers(), "nothing is left to look after")


def test_the_thread_outlives_a_server_that_is_away(open_store, proxy, caplog):
    """Units on their way are lost; units that were not sent wait for the server."""
    store, auditor = open_store(proxy.url, deadline=DEADLINE), open_store()
    limiter = Limiter(LIMIT, store=store, lease=Lease(validity=0.2), on_error="deny")
    keys = [f"k{number}" for number in range(8)]  # three failures are the most until the server counts as away
    for key in keys:
        warm(limiter, key)
    (thread,) = workers()
    FAULTS["nobody there"].inflict(proxy)
    wait_until(lambda: "tokens were lost" in caplog.text, "giving back fails")
    heal(proxy)
    wait_until(lambda: sum(charged(auditor, key) == 50 for key in keys) >= 2, "the rest is back")
    assert workers() in ([thread], [])
    limiter.close()
