"""PostgreSQL: one exact limit for many processes, threads and event loops, in two round trips."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, Limit, Limiter, StoreError
from headgate.stores import Store
from headgate.testing import ManualClock, StoreSuite
from tests.support.postgres import Postgres, psycopg, running
from tests.support.proxy import Proxy
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless
psycopg()

from headgate.stores.sql.postgres import PostgresStore  # noqa: E402 - the client may be missing


@pytest.fixture
def server():
    """The server of the run, without the table."""
    server = running()
    server.execute("DROP VIEW IF EXISTS headgate_usage", "DROP TABLE IF EXISTS headgate_states")
    return server


@pytest.fixture
def store(server):
    """A store by the server's clock."""
    with contextlib.closing(PostgresStore(server.url())) as store:
        yield store


class TestPostgres(StoreSuite):
    seeds = range(1)
    steps = 20

    @pytest.fixture(autouse=True)
    def _connections(self, server):
        from psycopg_pool import ConnectionPool

        self.server = server
        with ConnectionPool(server.dsn(), min_size=1, max_size=2) as self.pool:
            PostgresStore(self.pool, deadline=20).make_table()
            yield

    def store(self, clock: ManualClock) -> Store:
        """The rows of the test before are gone; its connections are used again."""
        store = PostgresStore(self.pool, deadline=20, clock=clock)
        with self.pool.connection() as connection:
            connection.execute("DELETE FROM headgate_states WHERE namespace <> ''")
        return store


@pytest.mark.soak
class TestPostgresForLong(TestPostgres):
    seeds = range(4)
    steps = 150


def rows(server: Postgres, what: str = "count(*)", table: str = "headgate_states") -> list[tuple[object, ...]]:
    return server.execute(f"SELECT {what} FROM {table} WHERE namespace <> ''")


def test_a_decision_takes_two_round_trips(server):
    """A hit, over one limit or several keys, takes two round trips, and so does a refund; a peek takes one."""
    with Proxy(server) as proxy, contextlib.closing(PostgresStore(server.url(port=proxy.port))) as store:
        limiter = Limiter("10/day", "5/day by sliding-log", store=store, on_error="raise")
        limiter.hit("before")

        def trips(verb) -> int:
            before = proxy.round_trips
            verb()
            return proxy.round_trips - before

        spent = limiter.hit("k")
        calls = [Call(Limit.parse(f"5/day as n{n}"), f"k{n}") for n in range(5)]
        assert trips(lambda: limiter.hit("new")) == 2
        assert trips(lambda: limiter.hit("k", 6)) == 2
        assert trips(lambda: limiter.decide(*calls)) == 2
        assert trips(lambda: limiter.refund(spent)) == 2
        assert trips(lambda: limiter.peek("k")) == 1


def test_a_refusal_writes_nothing(server, store):
    """A refused hit of a new key makes no row, and a refused hit of a known one leaves its row as it was."""
    limiter = Limiter("10/day", store=store, on_error="raise")
    assert not limiter.hit("never", 11) and rows(server) == [(0,)]
    limiter.hit("k", 10)
    before = rows(server, "ctid, xmin, xmax, *")
    assert not limiter.hit("k") and rows(server, "ctid, xmin, xmax, *") == before


def test_the_clock_of_the_server_decides(server, store):
    """Instants in rows are those of the server, whatever the clock of this machine says."""
    limiter = Limiter("10/day by sliding-log", store=store, on_error="raise")
    [(before,)] = server.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    limiter.hit("k")
    [(after,)] = server.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    [(stamp,)] = rows(server, "state")
    assert before < int(str(stamp)) < after


def test_two_orders_of_keys_never_deadlock(store):
    """Decisions that name the same keys in opposite orders lock them in one order."""
    limits = [Limit.parse(f"1000/day as n{n}") for n in range(4)]
    calls = [Call(limit, f"k{n}") for n, limit in enumerate(limits)]
    limiter = Limiter("1/day", store=store, on_error="raise")
    refused: list[object] = []

    def decide(order: list[Call]) -> None:
        refused.extend(decision for decision in (limiter.decide(*order) for _ in range(25)) if not decision)

    threads = [threading.Thread(target=decide, args=(order,)) for order in (calls, calls[::-1]) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert [Limiter(limits[n], store=store).peek(f"k{n}").remaining for n in range(4)] == [900] * 4


def test_a_role_that_defaults_to_serializable_is_exact_too(server):
    """The isolation of a decision does not depend on the settings of a role."""
    server.execute("ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
    try:
        with contextlib.closing(PostgresStore(server.url())) as store:
            limiter = Limiter("30/day", store=store, on_error="raise")
            passed: list[bool] = []
            hits = lambda: passed.extend(bool(limiter.hit("k")) for _ in range(5))  # noqa: E731
            threads = [threading.Thread(target=hits) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (len(passed), sum(passed)) == (40, 30)
    finally:
        server.execute("ALTER ROLE postgres RESET default_transaction_isolation")


def test_event_loops_are_exact(server):
    """Tasks are admitted exactly the limit; permits, several keys and a reset work as for threads."""

    async def main() -> None:
        store = PostgresStore(server.url())
        limiter = AsyncLimiter("50/day as rate; 3 in flight as busy", store=store, on_error="raise")
        taken = await asyncio.gather(*(limiter.hit("k") for _ in range(20)))
        assert sum(map(bool, taken)) == 3 and len(await limiter.holders("k")) == 3
        for decision in taken:
            await limiter.release(decision)
        plain = AsyncLimiter("50/day as rate", store=store, on_error="raise")
        assert sum(map(bool, await asyncio.gather(*(plain.hit("k") for _ in range(60))))) == 47
        await plain.reset("k")
        assert (await plain.hit("k")).remaining == 49
        waiting = asyncio.create_task(plain.hit("k"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await plain.peek("k")).remaining in (48, 49)
        await store.aclose()

    asyncio.run(main())


def test_ready_pools_are_used(server):
    """A pool of psycopg is a store, for threads or for event loops, and stays its owner's."""
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    with ConnectionPool(server.dsn(), min_size=1) as pool:
        limiter = Limiter("3/day", store=pool, on_error="raise")
        assert limiter.hit("k").remaining == 2
        limiter.store.close()
        with pool.connection() as connection:
            assert connection.execute("SELECT used FROM headgate_usage").fetchall() == [(1,)]
        with pytest.raises(InvalidCall, match="serves threads only"):
            asyncio.run(AsyncLimiter("3/day", store=pool, on_error="raise").hit("k"))

    async def main() -> None:
        async with AsyncConnectionPool(server.dsn(), min_size=1) as pool:
            assert (await AsyncLimiter("3/day", store=pool, on_error="raise").hit("k")).remaining == 1

    asyncio.run(main())


def test_a_forked_child_connects_itself(store):
    """A child does not use the connections of its parent, and both spend one budget."""
    limiter = Limiter("4/day", store=store, on_error="raise")
    assert limiter.hit("k").remaining == 3
    child = os.fork()
    if not child:
        os._exit(limiter.hit("k").remaining)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert limiter.hit("k").remaining == 1


def test_a_busy_key_is_answered_for_and_no_other(server):
    """While another transaction holds a key, `on_error` answers for it within the deadline; other keys go on."""
    with contextlib.closing(PostgresStore(server.url(deadline=2))) as store:
        limiter = Limiter("3/day", store=store, on_error="raise")
        wait_until(lambda: _passes(limiter), "the table is made")
        with psycopg().connect(server.dsn()) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_of("k")])
            with pytest.raises(StoreError, match="other transactions held these keys for longer than the deadline"):
                limiter.hit("k")
            wait_until(lambda: _passes(limiter), "another key passes")
        assert limiter.peek("k").remaining == 3


def _passes(limiter: Limiter) -> bool:
    with contextlib.suppress(StoreError):
        return limiter.hit("other", 0).allowed
    return False


def _lock_of(key: str) -> int:
    from headgate.stores.sql.names import Names

    return Names("default", b"", False).key(key).lock


def test_expired_rows_go(server, store):
    """Expired rows are deleted as other keys come, in batches, by the index."""
    limiter = Limiter("10/minute", store=store, on_error="raise")
    for n in range(30):
        limiter.hit(f"k{n}")
    server.execute("UPDATE headgate_states SET expires_at = now() - interval '1 second' WHERE namespace <> ''")
    busy = Limiter("1000/day", store=store, on_error="raise")
    for _ in range(64):
        busy.hit("busy")
    assert rows(server) == [(1,)]
    assert store.sweep() == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://ann:secret@db", "must name a database: write postgresql://db/app"),
        ("postgresql://ann:secret@db/app?frobnicate=1", "no option 'frobnicate'; use .*readable_keys, or an option of"),
        ("postgresql://ann:secret@db/app?max_conections=1", "no option .*; did you mean 'max_connections'?"),
        ("postgresql://ann:my?secret=1@db/app", "cannot read the URL"),
        ("postgresql://ann:secret@db/app?deadline=soon", "is not a number"),
        ("postgres://ann:secret@db:99999999/", "must name a database"),
    ],
)
def test_a_url_that_cannot_be_read_says_what_to_write(url, says):
    """A URL without a database or with unknown options is an error, which does not show the password."""
    with pytest.raises(InvalidCall, match=says) as error:
        Limiter("3/day", store=url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("database", "user", "says"),
    [("postgres", "nobody:s3cret", 'role "nobody" does not exist'), ("none", "postgres:s3cret", 'database "none"')],
)
def test_an_unknown_role_or_database_is_named(server, database, user, says):
    """The error names the role or the database that the server does not know, and no password."""
    store = PostgresStore(server.url(database, user, connect_timeout=1))
    with contextlib.closing(store), pytest.raises(StoreError, match=says) as error:
        Limiter("3/day", store=store, on_error="raise").hit("k")
    assert "s3cret" not in str(error.value)


def test_a_table_of_another_version_is_an_error(server, store):
    """A table that another Headgate made is neither read nor changed; the error says what to do."""
    store.make_table()
    server.execute("UPDATE headgate_states SET state = '7' WHERE namespace = ''")
    with pytest.raises(StoreError, match="has version 7, and this Headgate needs version 1: install a newer Headgate"):
        Limiter("3/day", store=store, on_error="raise").hit("k")


def test_a_role_without_rights_is_told_what_it_needs(server):
    """A role that may not create tables is told to run `headgate sql init`; with a grant on the table it decides."""
    server.execute("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN", "REVOKE CREATE ON SCHEMA public FROM public")
    with contextlib.closing(PostgresStore(server.url(user="clerk"))) as store:
        limiter = Limiter("3/day", store=store, on_error="raise")
        with pytest.raises(StoreError, match="run headgate sql init URL as a role that may create tables"):
            limiter.hit("k")
        with contextlib.closing(PostgresStore(server.url())) as owner:
            owner.make_table()
        server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON headgate_states TO clerk")
        assert limiter.hit("k").remaining == 2
    server.execute("DROP OWNED BY clerk", "DROP ROLE clerk")
