"""Functions in PostgreSQL: a decision over one limit in one round trip, equal to the reference steps."""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Any

import pytest

from headgate import Limiter
from headgate.stores import Store
from headgate.testing import ManualClock, StoreSuite
from tests.support.postgres import Postgres, psycopg, running
from tests.support.proxy import Proxy
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless
psycopg()

from headgate.stores.sql.functions import functions  # noqa: E402 - the client may be missing
from headgate.stores.sql.names import Name  # noqa: E402
from headgate.stores.sql.postgres import PostgresStore  # noqa: E402
from headgate.stores.sql.statements import reading, sweeping  # noqa: E402

START = 1_000_000_020.0
LIMITS = ("7/minute by fixed-window", "7/minute burst 3", "9/second", "100/week by fixed-window", "5/2 hours")


@pytest.fixture
def server():
    """The server of the run, with an empty table and without functions; `clerk` may use the table and make nothing."""
    server = running()
    server.execute("DROP TABLE IF EXISTS headgate_states CASCADE", "REVOKE CREATE ON SCHEMA public FROM public")
    with contextlib.closing(PostgresStore(server.url())) as store:
        store.make_table()
    drop_functions(server)
    server.execute("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN")
    server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON headgate_states TO clerk")
    yield server
    server.execute("DROP OWNED BY clerk", "DROP ROLE clerk")


def drop_functions(server: Postgres) -> None:
    server.execute(*(f"DROP FUNCTION IF EXISTS {function.name}" for function in functions().values()))


def functions_in(server: Postgres) -> int:
    [(count,)] = server.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'headgate\\_%'")
    return int(count)


@pytest.mark.soak
class TestPostgresWithoutFunctions(StoreSuite):
    seeds = range(2)
    steps = 100

    @pytest.fixture(autouse=True)
    def _server(self, server):
        from psycopg_pool import ConnectionPool

        self.server = server
        with ConnectionPool(server.dsn().replace("postgres@", "clerk@"), min_size=1, max_size=2) as self.pool:
            yield
        assert functions_in(server) == 0

    def store(self, clock: ManualClock) -> Store:
        self.server.execute("DELETE FROM headgate_states WHERE namespace <> ''")
        return PostgresStore(self.pool, deadline=20, clock=clock)


def test_a_decision_over_one_limit_takes_one_round_trip(server):
    """A hit of a bucket or a fixed window is one round trip, also a refused one; other limits take two."""
    with Proxy(server) as proxy, contextlib.closing(PostgresStore(server.url(port=proxy.port))) as store:

        def trips(limit: str, cost: int = 1) -> int:
            limiter = Limiter(limit, store=store, on_error="raise")
            before = proxy.round_trips
            limiter.hit("k", cost)
            return proxy.round_trips - before

        assert trips("10/day") > 1  # checks the table and makes the functions
        assert functions_in(server) == 2
        assert [trips("10/day"), trips("10/day", 9), trips("10/day by fixed-window"), trips("9/day burst 3")] == [1] * 4
        assert [trips("10/day by sliding-log"), trips("10/day block 1h"), trips("3 in flight")] == [2] * 3


@pytest.mark.parametrize("limit", LIMITS)
def test_functions_decide_and_write_as_the_reference_steps_do(server, limit):
    """Two stores, one with functions, answer the same and leave the same rows, also when the clock steps back."""
    chance, clock = random.Random(limit), ManualClock(START)
    with (
        contextlib.closing(PostgresStore(server.url(user="clerk"), readable_keys=True, clock=clock)) as plain,
        contextlib.closing(PostgresStore(server.url(), readable_keys=True, clock=clock)) as quick,
        psycopg().connect(server.dsn(), autocommit=True) as looker,
    ):
        by_steps = Limiter(limit, store=plain, namespace="steps", on_error="raise")
        by_function = Limiter(limit, store=quick, namespace="functions", on_error="raise")
        by_steps.peek("k")
        assert functions_in(server) == 0
        for _ in range(60):
            cost = chance.choice((0, 1, 1, 1, 2, 5, 200))
            decision = by_function.hit("k", cost)
            assert decision.verdicts == by_steps.hit("k", cost).verdicts
            assert row_of(looker, "functions") == row_of(looker, "steps")
            wait = chance.choice((0, decision.retry_after, decision.reset_after, chance.random() * 5, 0.1, -3, -90_000))
            aimed = chance.choice((-1, 0, 1)) / 1_000_000
            clock.set(max(START - 1e6, clock.now() + (0 if wait == float("inf") else wait) + aimed))
    assert functions_in(server) == 2


def row_of(looker: Any, namespace: str) -> list[tuple[object, ...]]:
    columns = "state, blocked_until, remaining, burst, decided_at, expires_at"
    rows = f"SELECT {columns} FROM headgate_states WHERE namespace = '{namespace}' AND key = 'k'"
    found: list[tuple[object, ...]] = looker.execute(rows).fetchall()
    return found


def test_a_role_that_may_not_make_functions_decides_without(server, caplog):
    """Its decisions are the same, in two round trips; a line of the log tells."""
    caplog.set_level(logging.INFO, "headgate")
    with contextlib.closing(PostgresStore(server.url(user="clerk"))) as store:
        limiter = Limiter("3/day", store=store, on_error="raise")
        assert [limiter.hit("k").remaining for _ in range(3)] == [2, 1, 0]
    assert functions_in(server) == 0
    assert [record.message for record in caplog.records if "functions" in record.message] == [
        f"127.0.0.1:{server.port}/postgres has no functions for decisions, which take two round trips instead of one: "
        "permission denied for schema public"
    ]


def test_a_role_that_may_not_call_functions_decides_without(server):
    """A database that gives nobody the right to call new functions costs a role a round trip, and no decision."""
    with contextlib.closing(PostgresStore(server.url())) as owner:
        owner.make_table()
    server.execute(*(f"REVOKE EXECUTE ON FUNCTION {each.name} FROM public" for each in functions().values()))
    with contextlib.closing(PostgresStore(server.url(user="clerk"))) as store:
        assert Limiter("3/day", store=store, on_error="raise").hit("k").remaining == 2


def test_functions_that_are_dropped_are_made_again(server):
    """A decision whose function is gone has written nothing, so it begins again; the counts go on."""
    with contextlib.closing(PostgresStore(server.url())) as store:
        limiter = Limiter("3/day", store=store, on_error="raise")
        assert limiter.hit("k").remaining == 2
        drop_functions(server)
        assert limiter.hit("k").remaining == 1
        assert functions_in(server) == 2


def test_a_connection_that_the_server_closed_is_noticed_before_it_is_used(server):
    """A decision in one round trip cannot begin again after it was sent, so a closed connection is found before."""
    with contextlib.closing(PostgresStore(server.url(max_connections=1))) as store:
        limiter = Limiter("9/day", store=store, on_error="raise")
        for left in range(8, 3, -1):
            assert limiter.hit("k").remaining == left
            server.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert limiter.peek("k").remaining == 4


def fill(server: Postgres, rows: int) -> None:
    """Add rows of other keys, of which none has expired."""
    server.execute(
        "INSERT INTO headgate_states SELECT 'other', n, '', '', 0, 0, 0, now(), now() + interval '1 day' + n * "
        f"interval '1 second' FROM generate_series(1, {rows}) AS n"
    )


def scanned(server: Postgres) -> int:
    """The rows of the table that were read without an index; sessions tell when they end."""
    mine = "FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"
    wait_until(lambda: server.execute(f"SELECT count(*) {mine}") == [(0,)], "the sessions have ended")
    [(count,)] = server.execute("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'headgate_states'")
    return int(count)


def test_a_table_that_grows_is_never_scanned(server):
    """A session that has made its plans for a small table reads new keys by the index when the table is large."""
    before = scanned(server)
    with contextlib.closing(PostgresStore(server.url(max_connections=1))) as store:
        limiter = Limiter("10/day", store=store, on_error="raise")
        limiter.hit("first")
        server.execute("VACUUM ANALYZE headgate_states")
        for n in range(10):
            limiter.hit(f"small {n}")
        fill(server, 5_000)
        for n in range(10):
            limiter.hit(f"large {n}")
    assert scanned(server) - before < 1_000


def test_every_statement_uses_an_index(server):
    """Neither a lookup nor a sweep scans the table, whether many rows have expired or none."""
    fill(server, 5_000)
    texts = [sweeping(None), reading([Name("n", "k1", "l"), Name("n", "k2", "l")])]
    for _ in range(2):
        server.execute("VACUUM ANALYZE headgate_states")
        for text in texts:
            plan = " ".join(line for (line,) in server.execute(f"EXPLAIN {text}"))
            assert "Index Scan" in plan and "Seq Scan" not in plan
        server.execute("UPDATE headgate_states SET expires_at = now() - interval '1 second' WHERE namespace <> ''")
