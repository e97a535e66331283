"""PostgreSQL that is away, slow, killed, read-only or behind PgBouncer: no decision is charged twice or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from headgate import AsyncLimiter, Limiter, StoreError
from headgate.stores.breaker import Transition
from headgate.stores.sql.names import Name, Names
from tests.support import ROOT
from tests.support.postgres import Postgres, another, as_nobody, psycopg, running
from tests.support.proxy import Proxy
from tests.support.servers import free_port, wait_until

pytestmark = pytest.mark.engineless
psycopg()

from headgate.stores.sql.postgres import PostgresStore  # noqa: E402 - the client may be missing
from headgate.stores.sql.statements import opening  # noqa: E402

LIMIT = "10/day by fixed-window"


@pytest.fixture
def server():
    """The server of the run, with an empty table."""
    server = running()
    server.execute("DROP TABLE IF EXISTS headgate_states CASCADE")
    with contextlib.closing(PostgresStore(server.url())) as store:
        store.make_table()
    return server


def used(server: Postgres) -> dict[str, int]:
    return dict(server.execute("SELECT key, used FROM headgate_usage WHERE key <> 'first'"))


@pytest.mark.parametrize(("limit", "most"), [(LIMIT, 120), ("10/day by sliding-log", 400)])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_reply_that_is_cut_anywhere_charges_at_most_once(server, awaited, limit, most):
    """Wherever a connection is cut, a hit is charged once or not at all; one that is answered is charged once."""
    answered: set[str] = set()

    async def hit_all() -> None:
        store = PostgresStore(server.url(port=proxy.port, readable_keys=1))
        limiter = (AsyncLimiter if awaited else Limiter)(limit, store=store, on_error="raise")

        async def hit(key: str) -> None:
            decision = limiter.hit(key)
            assert await decision if awaited else decision  # type: ignore[misc]

        await hit("first")
        for first in range(13):  # until a cut was between the commit and its reply, mostly in the first round
            for n in range(first, most, 13):
                store.breaker.close()
                proxy.cut_after(n)
                with contextlib.suppress(StoreError):
                    await hit(f"cut-{n}")
                    answered.add(f"cut-{n}")
            if used(server).keys() - answered:
                break
        await store.aclose()

    with Proxy(server) as proxy:
        asyncio.run(hit_all())
    charged = used(server)
    assert set(charged.values()) == {1}
    assert answered <= charged.keys()
    assert charged.keys() - answered
    if limit != LIMIT:  # before the commit a lost connection is no failure: the decision begins again
        assert len(answered) > 10


def test_a_silent_server_is_answered_for_within_the_deadline(server):
    """A server that does not reply costs a caller the deadline, then nothing: the breaker opens, and closes again."""
    seen: list[Transition] = []
    with Proxy(server) as proxy:
        store = PostgresStore(
            server.url(port=proxy.port, deadline=0.1, connect_timeout=0.1, nodes=2), on_transition=seen.append
        )
        with contextlib.closing(store):
            limiter = Limiter("4/day", store=store)
            # On a busy machine the first hits may fail; after ten successes in a row, such failures count no more.
            wait_until(lambda: not any(limiter.hit("k", 0).degraded for _ in range(11)), "the server answers")
            seen.clear()
            before = store.health()
            assert before.up and before.seconds is not None and before.seconds["count"] >= 1
            proxy.hold()
            decisions = [limiter.hit("k") for _ in range(4)]
            assert all(decision.degraded for decision in decisions)
            assert [decision.allowed for decision in decisions] == [True, True, False, False]
            assert [transition.available for transition in seen] == [False]
            with pytest.raises(StoreError, match="is away"):
                Limiter("4/day", store=store, on_error="raise").hit("k")
            assert store.health() == (False, before.errors + 3, before.seconds)
            proxy.release()
            wait_until(lambda: not limiter.hit("other", 0).degraded, "the server is back")
            assert [transition.available for transition in seen] == [False, True]
            assert store.health().up


@pytest.mark.parametrize("awaited", [False, True])
def test_a_connection_that_is_never_answered_does_not_keep_out_the_next(server, awaited):
    """A login that was lost on its way is given up after seconds, not minutes: until then a pool makes no other."""
    with socket.create_server(("127.0.0.1", 0)) as lost, asyncio.Runner() as runner:
        proxy = Proxy(server)
        proxy.port = lost.getsockname()[1]
        store = PostgresStore(server.url(port=proxy.port, connect_timeout=0.1, deadline=1))

        async def degraded() -> bool:
            await asyncio.sleep(0.1)  # a pool connects while its event loop runs
            return (await AsyncLimiter(LIMIT, store=store).hit("k", 0)).degraded

        def is_degraded() -> bool:
            return runner.run(degraded()) if awaited else Limiter(LIMIT, store=store).hit("k", 0).degraded

        assert is_degraded()
        kept, _ = lost.accept()
        lost.close()
        with kept, proxy:
            wait_until(lambda: not is_degraded(), "another connection is made", 15)
        runner.run(store.aclose())


def test_a_killed_server_keeps_what_it_has_counted(server):
    """After a crash and a restart the store goes on by itself, with every charge that it had answered."""
    with contextlib.closing(PostgresStore(server.url(deadline=1, connect_timeout=0.2))) as store:
        limiter = Limiter(LIMIT, store=store)
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the first connection is made")
        assert [limiter.hit("k").remaining for _ in range(4)] == [9, 8, 7, 6]
        server.kill()
        assert limiter.hit("k").degraded
        server.start()
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the store has come back")
        assert limiter.hit("k").remaining == 5


def test_a_killed_client_frees_its_keys(server):
    """A process that is killed between its two round trips has charged nothing, and holds nobody up."""
    names, locks = _rows_of("k")
    code = (
        "import sys, time, psycopg\n"
        "connection = psycopg.connect(sys.argv[1])\n"
        "connection.pgconn.exec_(sys.argv[2].encode())\n"
        "print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, server.dsn(), opening(names, locks, 1000)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert client.stdout is not None and client.stdout.readline() == b"locked\n"
    with contextlib.closing(PostgresStore(server.url())) as store:
        client.send_signal(signal.SIGKILL)
        client.communicate()
        assert Limiter(LIMIT, store=store, on_error="raise").hit("k").remaining == 9


def test_a_stalled_client_holds_a_key_for_a_second_at_most(server):
    """A client that stops with a locked key is ended by the server, and the next decision of the key goes on."""
    names, locks = _rows_of("k")
    stalled = psycopg().connect(server.dsn())
    stalled.pgconn.exec_(opening(names, locks, 1000).encode())
    with contextlib.closing(PostgresStore(server.url())) as store:
        assert Limiter(LIMIT, store=store, on_error="raise").hit("k").remaining == 9
    with pytest.raises(psycopg().Error):
        stalled.execute("SELECT 1")
    stalled.close()


def _rows_of(key: str) -> tuple[list[Name], list[int]]:
    from headgate import Limit

    return Names("default", b"", False).rows((Limit.parse(LIMIT),), key)


@pytest.mark.soak
def test_a_failover_goes_on_with_the_counts_of_the_replica(caplog):
    """With both servers in the URL, the store finds the new primary; what was replicated counts; replicas say no."""
    with another() as primary:
        with contextlib.closing(PostgresStore(primary.url())) as store:
            store.make_table()
        replica = primary.replica()
        try:
            reader = PostgresStore(replica.url())
            with contextlib.closing(reader), pytest.raises(StoreError, match="read-only; with several hosts"):
                Limiter(LIMIT, store=reader, on_error="raise").hit("k")
            hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
            url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&deadline=2"
            with contextlib.closing(PostgresStore(url)) as store:
                limiter = Limiter(LIMIT, store=store)
                wait_until(lambda: not limiter.hit("k", 0).degraded, "the first connection is made")
                assert [limiter.hit("k").remaining for _ in range(4)] == [9, 8, 7, 6]
                wait_until(
                    lambda: replica.execute("SELECT used FROM headgate_usage WHERE used = 4"), "it is replicated"
                )
                primary.kill()
                assert limiter.hit("k").degraded
                replica.promote()
                wait_until(lambda: not limiter.hit("k", 0).degraded, "the store has found the new primary")
                assert limiter.hit("k").remaining == 5
        finally:
            replica.close()


@contextlib.contextmanager
def bouncer(server: Postgres):
    """PgBouncer in transaction mode, with two sessions for all of its clients; its port."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer here: apt install pgbouncer")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={server.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n"
        )
        os.chmod(folder, 0o755)
        process = subprocess.Popen([*as_nobody(), program, "-q", str(settings)], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _connects(port), "PgBouncer answers")
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _connects(port: int) -> bool:
    with contextlib.suppress(psycopg().Error):
        psycopg().connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=5).close()
        return True
    return False


def test_why_a_server_is_away_is_told_in_one_line(server, caplog):
    """libpq tells in three lines that a connection was lost; a log that is read by lines would take them apart."""
    with Proxy(server) as proxy, contextlib.closing(PostgresStore(server.url(port=proxy.port))) as store:
        limiter = Limiter(LIMIT, store=store)
        wait_until(lambda: not limiter.hit("k", 0).degraded, "the first connection is made")
        while not store.breaker.open:
            proxy.drop_reply()
            limiter.hit("k")
    (told,) = [record.getMessage() for record in caplog.records if "is away" in record.getMessage()]
    assert "server closed the connection unexpectedly" in told
    assert "\n" not in told


def test_pgbouncer_in_transaction_mode_is_exact(server):
    """Sixteen threads over two sessions are admitted exactly the limit; no session keeps a lock or a setting."""
    with bouncer(server) as port, contextlib.closing(PostgresStore(server.url(port=port))) as store:
        limiter = Limiter("50/day", "3 in flight ttl 1 week", store=store, on_error="raise")
        passed: list[bool] = []

        def spend() -> None:
            for _ in range(5):
                decision = limiter.hit("k")
                passed.append(bool(decision))
                limiter.release(decision)

        threads = [threading.Thread(target=spend) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(passed) == 80 and sum(passed) <= 50
        assert limiter.peek("k", 0).verdicts[0].remaining == 50 - sum(passed)
        assert limiter.holders("k") == []
        assert server.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
