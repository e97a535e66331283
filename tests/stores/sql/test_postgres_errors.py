"""Errors of a PostgreSQL server: a decision is charged once or not at all, and `on_error` answers for it in time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter, StoreError
from headgate.stores.sql.names import Names
from tests.support.postgres import Postgres, psycopg, running
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless
psycopg()

from headgate.stores.sql.postgres import PostgresStore  # noqa: E402 - the client may be missing

BY_FUNCTION, BY_STEPS = "10/day by fixed-window", "10/day by sliding-log"
both = pytest.mark.parametrize("limit", [BY_FUNCTION, BY_STEPS])


@pytest.fixture
def server():
    """The server of the run, with an empty table, and a role `clerk` that decides."""
    server = running()
    server.execute("DROP TABLE IF EXISTS headgate_states CASCADE")
    server.execute("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN")
    with contextlib.closing(PostgresStore(server.url())) as store:
        store.make_table()
    server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON headgate_states TO clerk")
    yield server
    server.execute("DROP OWNED BY clerk", "DROP ROLE clerk")


def used(server: Postgres) -> list[tuple[int]]:
    return server.execute("SELECT used FROM headgate_usage WHERE namespace = 'default'")


@contextlib.contextmanager
def failing(server: Postgres, code: str, times: int, at_commit: bool):
    """Let the next writes fail with a SQLSTATE, as they are made or as they are committed; nextval is not undone."""
    when = "CONSTRAINT TRIGGER failing AFTER" if at_commit else "TRIGGER failing BEFORE"
    server.execute(
        "CREATE SEQUENCE attempts",
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF nextval('attempts') <= {times} THEN RAISE EXCEPTION 'as asked' USING ERRCODE = '{code}'; END IF; "
        "RETURN NEW; END $$",
        f"CREATE {when} INSERT OR UPDATE ON headgate_states {'INITIALLY DEFERRED' if at_commit else ''} "
        "FOR EACH ROW EXECUTE FUNCTION fail()",
    )
    try:
        yield lambda: server.execute("SELECT last_value FROM attempts")[0][0]
    finally:
        server.execute("DROP FUNCTION fail CASCADE", "DROP SEQUENCE attempts")


@both
@pytest.mark.parametrize("at_commit", [False, True])
@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_serialization_failure_or_a_deadlock_begins_again(server, code, at_commit, limit):
    """The server has undone the decision, so it begins again, and is charged once."""
    with failing(server, code, 2, at_commit) as attempts, contextlib.closing(PostgresStore(server.url())) as store:
        assert Limiter(limit, store=store, on_error="raise").hit("k").remaining == 9
        assert attempts() == 3
    assert used(server) == [(1,)]


@both
def test_event_loops_begin_again_too(server, limit):
    """A serialization failure costs a task another attempt, and one charge is made."""

    async def main() -> None:
        store = PostgresStore(server.url())
        assert (await AsyncLimiter(limit, store=store, on_error="raise").hit("k")).remaining == 9
        await store.aclose()

    with failing(server, "40001", 2, False):
        asyncio.run(main())
    assert used(server) == [(1,)]


@both
def test_failures_without_end_are_answered_for(server, limit):
    """After a few attempts `on_error` answers and nothing is charged; the server is well, so it is asked again."""
    with contextlib.closing(PostgresStore(server.url(), nodes=5)) as store:
        limiter = Limiter(limit, store=store)
        with failing(server, "40001", 1_000_000, False) as attempts:
            decisions = [limiter.hit("k") for _ in range(5)]
            assert [(each.degraded, each.allowed) for each in decisions] == [(True, n < 2) for n in range(5)]
            assert attempts() == 5 * 4 and (store.health().up, store.health().errors) == (True, 5)
            with pytest.raises(StoreError, match="other transactions were in the way too often: as asked"):
                Limiter(limit, store=store, on_error="raise").hit("k")
        assert used(server) == []
        assert limiter.hit("k").remaining == 9


@both
def test_a_deadlock_with_another_program_ends(server, limit):
    """Another program has the row and wants the key: the server ends one of the two, and the hit is charged once."""
    lock = Names("default", b"", False).key("k").lock
    soon = server.url(options="-c%20deadlock_timeout%3D50ms")  # mostly the session of the store is ended
    with contextlib.closing(PostgresStore(soon)) as store, psycopg().connect(server.dsn()) as other:
        limiter = Limiter(limit, store=store, on_error="raise")
        limiter.hit("k")
        other.execute("UPDATE headgate_states SET burst = burst WHERE namespace <> ''")
        left: list[int] = []
        thread = threading.Thread(target=lambda: left.append(limiter.hit("k").remaining))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: server.execute(waits) == [(1,)], "the hit waits for the row")
        try:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
            other.commit()
        except psycopg().errors.DeadlockDetected:  # if this program was late
            other.rollback()
        thread.join()
        assert left == [8]


def test_options_of_libpq_reach_the_server(server):
    """A URL may set the search path, with a space in its options: the table is made in that schema."""
    server.execute("DROP SCHEMA IF EXISTS limits CASCADE", "CREATE SCHEMA limits")
    with contextlib.closing(PostgresStore(server.url(options="-c%20search_path%3Dlimits"))) as store:
        assert Limiter(BY_FUNCTION, store=store, on_error="raise").hit("k").remaining == 9
    assert server.execute("SELECT used FROM limits.headgate_usage") == [(1,)]
    server.execute("DROP SCHEMA limits CASCADE")


@both
def test_a_locked_row_leaves_no_session_behind(server, limit):
    """While another program has the row, `on_error` answers; the server gives up too, so nothing is charged later."""
    with (
        contextlib.closing(PostgresStore(server.url(deadline=0.2))) as store,
        contextlib.closing(PostgresStore(server.url())) as patient,
        psycopg().connect(server.dsn()) as other,
    ):
        Limiter(limit, store=patient, on_error="raise").hit("k")
        other.execute("UPDATE headgate_states SET burst = burst WHERE namespace <> ''")
        assert Limiter(limit, store=store).hit("k").degraded
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: server.execute(waits) == [(0,)], "no session waits")
        other.rollback()
    assert used(server) == [(1,)]


def test_a_server_without_free_connections_is_answered_for(server):
    """The error says so and what to do; `on_error` answers at once after some failures; a free connection is used."""
    server.execute("ALTER ROLE clerk CONNECTION LIMIT 1")
    with (
        contextlib.closing(PostgresStore(server.url(user="clerk", connect_timeout=0.3))) as store,
        contextlib.closing(psycopg().connect(server.dsn().replace("postgres@", "clerk@"))) as other,
    ):
        with pytest.raises(StoreError, match="lower max_connections, or use PgBouncer: .*for role"):
            Limiter(BY_FUNCTION, store=store, on_error="raise").hit("k")
        limiter = Limiter(BY_FUNCTION, store=store)
        assert all(limiter.hit("k").degraded for _ in range(3))
        assert not store.health().up
        other.close()
        wait_until(lambda: not limiter.hit("k", 0).degraded, "a connection is free")
        assert limiter.hit("k").remaining == 9


def test_a_pool_without_free_connections_is_answered_for(server):
    """Threads that wait for a connection for longer than `connect_timeout` get the answer of `on_error`."""
    lock = Names("default", b"", False).key("k").lock
    with contextlib.closing(PostgresStore(server.url(max_connections=1, connect_timeout=0.5))) as store:
        limiter = Limiter(BY_FUNCTION, store=store)
        wait_until(lambda: not limiter.hit("other", 0).degraded, "the connection is made")
        with psycopg().connect(server.dsn()) as holder:
            holder.execute("SELECT pg_advisory_lock(%s)", [lock])
            thread = threading.Thread(target=lambda: limiter.hit("k"))
            thread.start()
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: server.execute(waits) == [(1,)], "the only connection waits")
            assert limiter.hit("other").degraded
            holder.execute("SELECT pg_advisory_unlock(%s)", [lock])
            thread.join()
        assert limiter.peek("k").remaining == 9 and limiter.peek("other").remaining == 10


@pytest.mark.parametrize("busy", [True, False])
def test_a_server_that_answers_others_is_not_away(server, busy):
    """A pool whose connections are all in use costs its own decisions only; one that gets no answers is away."""
    from psycopg_pool import ConnectionPool, PoolTimeout

    class Crowded(ConnectionPool):
        full = False

        def getconn(self, timeout: float | None = None) -> Any:
            if not self.full:
                return super().getconn(timeout)
            self.full = False
            if busy:
                limiter.hit("other")  # as another thread, meanwhile
            raise PoolTimeout("as asked")

    with Crowded(server.dsn(), min_size=1) as pool:
        limiter = Limiter(BY_FUNCTION, store=pool)
        assert limiter.hit("k").remaining == 9
        for _ in range(5):
            pool.full = True
            assert limiter.hit("k").degraded
        assert limiter.store.health().up == busy
        limiter.store.close()


@both
def test_a_read_only_server_is_answered_for(server, limit):
    """The error says that the server is read-only; nothing is charged, and the store notices when it may write."""
    server.execute("ALTER ROLE clerk SET default_transaction_read_only = on")
    with contextlib.closing(PostgresStore(server.url(user="clerk"))) as store:
        with pytest.raises(StoreError, match="the server is read-only"):
            Limiter(limit, store=store, on_error="raise").hit("k")
        limiter = Limiter(limit, store=store)
        assert all(limiter.hit("k").degraded for _ in range(3)) and not store.health().up
        assert used(server) == []
        server.execute("ALTER ROLE clerk RESET default_transaction_read_only")
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the role may write")
        assert limiter.hit("k").remaining == 9
