"""SQLite: one file, several processes, threads and event loops; and all that can be wrong with a file."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
import threading
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, Limit, Limiter, StoreError
from headgate.stores.sql.sqlite import SqliteStore
from headgate.testing import ManualClock
from tests.support.inside import renewal_of

pytestmark = pytest.mark.engineless


@pytest.fixture
def store(url):
    """A store by a clock that stands still."""
    with contextlib.closing(SqliteStore(url, clock=ManualClock(1e9))) as store:
        yield store


def rows(store: SqliteStore, what: str = "count(*)", table: str = "headgate_states") -> list[Any]:
    """What a person sees who opens the file."""
    with contextlib.closing(sqlite3.connect(store.path)) as looker:
        return looker.execute(f"SELECT {what} FROM {table} WHERE namespace <> ''").fetchall()


def test_a_refusal_writes_nothing(store):
    """A refused hit of a new key makes no row, and a refused hit of a known one leaves its row as it was."""
    limiter = Limiter("10/minute", store=store, on_error="raise")
    assert not limiter.hit("never", 11) and limiter.peek("k").remaining == 10
    assert rows(store) == [(0,)]
    limiter.hit("k", 10)
    before = rows(store, "*")
    assert not limiter.hit("k") and rows(store, "*") == before


def test_only_a_permit_that_was_taken_is_renewed(store):
    """A peek at a limit in flight and a refusal take none: nothing would be found to renew, and be logged as lost."""
    limiter = Limiter("1 in flight", store=store, on_error="raise")
    assert limiter.peek("k") and not renewal_of(store).held
    assert limiter.hit("k") and not limiter.hit("k")
    assert [name.key for name in renewal_of(store).held] == ["k"]


def test_a_decision_that_fails_midway_leaves_no_transaction_open(store):
    """Its writes are rolled back, and both this store and others decide again as soon as the reason is gone."""
    limiter = Limiter("10/minute", "2 in flight", store=store, on_error="raise")
    limiter.hit("k")
    with contextlib.closing(sqlite3.connect(store.path, timeout=0)) as other:
        other.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON headgate_states WHEN NEW.limit_name = 'in-flight' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(StoreError):
            limiter.hit("k")
        other.execute("DROP TRIGGER broken")
    assert [each.remaining for each in limiter.hit("k").verdicts] == [8, 0]


def test_rows_can_be_read_by_a_person(store):
    """A row has the namespace, the limit, integers and instants; the key is a hash; the view tells what is left."""
    limiter = Limiter("10/minute as api", store=store, namespace="shop", on_error="raise")
    limiter.hit("ann@example.com", 3)
    [(namespace, key, limit, state)] = rows(store, "namespace, key, limit_name, state")
    assert (namespace, limit, state) == ("shop", "token-bucket minute as api", "1000000018000000 0")
    assert key.startswith("#") and len(key) == 23 and "ann" not in key
    usage = "remaining, used, burst, decided_at, expires_at"
    assert rows(store, usage, "headgate_usage") == [(10, 0, 10, "2001-09-09 01:46:40", "2001-09-09 01:47:00")]


def test_readable_keys_are_stored_as_they_are(url):
    """With `readable_keys`, keys can be joined with other tables; a key that no column can hold is a hash."""
    with contextlib.closing(SqliteStore(url, readable_keys=True)) as store:
        limiter = Limiter("10/day by fixed-window", store=store, namespace="it's", on_error="raise")
        for key in ("customer:42", "o'hara", "\ud800", "x" * 4096, "#"):
            limiter.hit(key)
        seen = rows(store, "key, used", "headgate_usage")
        assert ("customer:42", 1) in seen and len(seen) == 5
        assert sum(key.startswith("#") for key, _ in seen) == 4
        assert rows(store, "namespace")[0][0].startswith("#")


def test_states_survive_the_process(url):
    """A store that opens the file again goes on with the states in it."""
    for left in (2, 1, 0):
        with contextlib.closing(SqliteStore(url)) as store:
            assert Limiter("3/day", store=store, on_error="raise").hit("k").remaining == left


def test_threads_share_one_file(url):
    """Sixteen threads of one store are admitted exactly the limit."""
    with contextlib.closing(SqliteStore(url)) as store:
        limiter = Limiter("50/day", store=store, on_error="raise")
        passed: list[bool] = []
        threads = [
            threading.Thread(target=lambda: passed.extend(bool(limiter.hit("k")) for _ in range(10))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(passed), sum(passed)) == (160, 50)


def test_event_loops_share_one_thread(url):
    """Tasks are admitted exactly the limit, over several keys, permits and refunds, and one thread serves them all."""

    async def main() -> None:
        store = SqliteStore(url)
        limiter = AsyncLimiter("50/day as rate; 3 in flight as busy", store=store, on_error="raise")
        taken = await asyncio.gather(*(limiter.hit("k") for _ in range(20)))
        assert sum(map(bool, taken)) == 3
        assert sum(thread.name.startswith("headgate-sqlite") for thread in threading.enumerate()) == 1
        assert len(await limiter.holders("k")) == 3
        for decision in taken:
            await limiter.release(decision)
        plain = AsyncLimiter("50/day as rate", store=store, on_error="raise")
        assert sum(map(bool, await asyncio.gather(*(plain.hit("k") for _ in range(60))))) == 47
        both = await plain.decide(Call(Limit.parse("5/day as a"), "x"), Call(Limit.parse("5/day as b"), "y", cost=6))
        assert both.never and (await plain.peek("x")).remaining == 50
        await plain.reset("k")
        assert (await plain.hit("k")).remaining == 49
        await store.aclose()

    asyncio.run(main())


def test_a_forked_child_opens_the_file_itself(url):
    """A child does not use the connection of its parent, and both spend one budget."""
    with contextlib.closing(SqliteStore(url)) as store:
        limiter = Limiter("3/day", store=store, on_error="raise")
        assert limiter.hit("k").remaining == 2
        child = os.fork()
        if not child:
            os._exit(limiter.hit("k").remaining)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert limiter.hit("k").remaining == 0


def test_a_table_of_another_version_is_an_error(store):
    """A table that another Headgate made is neither read nor changed; the error says what to do."""
    limiter = Limiter("3/day", store=store, on_error="raise")
    limiter.hit("k")
    store.close()
    with contextlib.closing(sqlite3.connect(store.path)) as other, other:
        other.execute("UPDATE headgate_states SET state = '7' WHERE namespace = ''")
    with pytest.raises(StoreError, match="has version 7, and this Headgate needs version 1: install a newer Headgate"):
        limiter.hit("k")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "needs a file; write sqlite:///var"),
        ("sqlite:///", "needs a file; write sqlite:///var"),
        ("sqlite://limits.db", "the path must be absolute; write sqlite:///"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///tmp/x.db?deadline=soon", "is not a number"),
        ("sqlite:///tmp/x.db?deadline=0", "deadline is a number of seconds"),
        ("sqlite:///tmp/x.db?cache=shared", "has the options deadline, nodes, readable_keys"),
    ],
)
def test_a_url_that_cannot_be_read_says_what_to_write(url, says):
    """A URL without a file, with a relative path or with unknown options is an error."""
    with pytest.raises(InvalidCall, match=says):
        Limiter("3/day", store=url)


def test_leases_are_refused(url):
    """A store in a database has no leases, and says so."""
    with pytest.raises(InvalidCall, match="leave lease out"):
        Limiter("3/day", store=url, lease=True)


def test_expired_rows_are_deleted_in_batches(store):
    """A sweep deletes a batch of expired rows, the oldest first; a row that still counts stays."""
    limiter = Limiter("10/minute", store=store, on_error="raise")
    for n in range(200):
        limiter.hit(f"k{n}")
    Limiter("10/100 days", store=store, on_error="raise").hit("kept")
    assert store.sweep() == 0
    store.clock.advance(3600)
    assert [store.sweep() for _ in range(3)] == [128, 72, 0]
    assert rows(store) == [(1,)]


def test_a_store_sweeps_after_some_writes(url):
    """Without a call of `sweep`, expired rows go as other keys come."""
    with contextlib.closing(SqliteStore(url)) as store:
        limiter = Limiter("10/minute", store=store, on_error="raise")
        for n in range(60):
            limiter.hit(f"k{n}")
        with contextlib.closing(sqlite3.connect(store.path)) as other, other:
            other.execute("UPDATE headgate_states SET expires_at = 1 WHERE namespace <> ''")
        for _ in range(64):
            limiter.hit("busy")
        assert rows(store) == [(1,)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list open files")
def test_a_store_that_is_dropped_closes_its_file(tmp_path):
    """A limiter that nobody closes and nobody uses any more leaves no file open, and no warning of one."""
    file = tmp_path / "limits.db"
    limiter = Limiter("5/minute", store=f"sqlite://{file}")
    limiter.hit("k")

    def is_open() -> bool:
        return any(os.path.realpath(f"/proc/self/fd/{name}") == str(file) for name in os.listdir("/proc/self/fd"))

    assert is_open()
    del limiter
    gc.collect()
    assert not is_open()
