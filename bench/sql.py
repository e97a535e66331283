"""Limits in databases: headgate's stores and pyrate-limiter's buckets, in one process and in several, on real files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from glob import glob
from pathlib import Path
from time import monotonic, perf_counter_ns, process_time_ns, sleep
from typing import Any

from bench.contestant import MissingError, WorkloadError
from bench.measure import Figures
from bench.sharer import own_directory

OURS, THEIRS = "headgate", "pyrate-limiter"
POSTGRES, SQLITE = "PostgreSQL", "SQLite"
PROCESSES = 4
WEEKS = 4
HITS = {(OURS, POSTGRES): 600, (THEIRS, POSTGRES): 150, (OURS, SQLITE): 3_000, (THEIRS, SQLITE): 300}
"""Hits of each process; few, since a bucket of pyrate-limiter counts its rows for each of them."""
MANY = 50
"""Keys of the runs on many keys: each is a table of its own for pyrate-limiter in PostgreSQL."""
GROWN_HITS = 1_000
START_SECONDS = 60
Hit = Callable[[int], bool]
"""Hits a key by its number."""


def name(who: str, where: str, processes: int) -> str:
    return f"{who}, {where}, {processes} process{'es' if processes > 1 else ''}"


def measure_sql(contestant: str, keys: int) -> Figures:
    """Decisions a second of all processes together, their CPU, the slowest hit of a hundred, and what was admitted."""
    who, where, processes = contestant.split(", ")
    count = int(processes.split()[0])
    hits = HITS[who, where]
    amount = count * hits // keys * 5 // 6
    with own_directory() as folder, place(where, folder) as url:
        opened = OPEN[who, where]
        opened(url, amount, keys)(0)  # makes the tables; one unit of the first key is spent
        before = server_cpu(folder)
        laps = in_processes(count, lambda: opened(url, amount, keys), hits, keys)
        served = server_cpu(folder) - before
    span = max(lap["end"] for lap in laps) - min(lap["start"] for lap in laps)
    waits = sorted(wait for lap in laps for wait in lap["waits"])
    admitted = sum(lap["admitted"] for lap in laps) + 1
    if who == OURS and admitted != amount * keys:
        raise WorkloadError(f"{contestant}: {admitted} hits were admitted, and {amount * keys} fit the limits")
    return {
        "ns": span / len(waits), "cpu": (sum(lap["cpu"] for lap in laps) + served) / len(waits),
        "hits": len(waits), "p99": waits[len(waits) * 99 // 100], "amount": amount * keys, "admitted": admitted,
    }  # fmt: skip


def server_cpu(folder: str) -> float:
    """Nanoseconds of CPU of the server in this folder, with all of its sessions, also those that have ended."""
    pid = Path(folder) / "data" / "postmaster.pid"
    if not pid.exists():
        return 0.0
    main = pid.read_text().split()[0]
    ticks = 0
    for stat in glob("/proc/[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = Path(stat).read_text().partition(" (")
            fields = rest.rpartition(") ")[2].split()
            if number == main or fields[1] == main:
                ticks += sum(map(int, fields[11:15] if number == main else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") * 1e9


def in_processes(count: int, opened: Callable[[], Hit], hits: int, keys: int) -> list[dict[str, Any]]:
    fork = multiprocessing.get_context("fork")
    barrier, queue = fork.Barrier(count), fork.Queue()

    def work(number: int) -> None:
        hit = opened()
        waits, admitted = [], 0
        barrier.wait(START_SECONDS)
        start, cpu = perf_counter_ns(), process_time_ns()
        for nth in range(hits):
            before = perf_counter_ns()
            admitted += hit((nth + number) % keys)
            waits.append(perf_counter_ns() - before)
        end, cpu = perf_counter_ns(), process_time_ns() - cpu
        queue.put({"start": start, "end": end, "cpu": cpu, "waits": waits, "admitted": admitted})

    processes = [fork.Process(target=work, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    laps = [queue.get(timeout=10 * START_SECONDS) for _ in processes]
    for process in processes:
        process.join()
    return laps


def measure_grown(contestant: str, keys: int) -> Figures:
    """Nanoseconds of a hit on new keys, in an empty table and beside many rows, and the bytes of each row."""
    _, where, _ = contestant.split(", ")
    with own_directory() as folder, place(where, folder) as url:
        hit = OPEN[OURS, where](url, 1_000_000, 0)
        empty = timed(hit, range(-GROWN_HITS, 0))
        fill(url, keys)
        hit = OPEN[OURS, where](url, 1_000_000, 0)
        grown = timed(hit, range(-2 * GROWN_HITS, -GROWN_HITS))
        size = size_of(url)
    return {"ns": grown[0], "p99": grown[1], "empty": empty[0], "empty_p99": empty[1], "bytes": size / keys}


def timed(hit: Hit, keys: range) -> tuple[float, float]:
    """The median and the slowest of a hundred."""
    waits = []
    for key in keys:
        before = perf_counter_ns()
        hit(key)
        waits.append(perf_counter_ns() - before)
    waits.sort()
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


COLUMNS = "namespace, key, limit_name, state, blocked_until, remaining, burst, decided_at, expires_at"
HASH = "'#' || substr('AAAAAAAAAAAAAAAAAAAAAAAA' || n, -22)"
ROW = f"'default', {HASH}, 'token-bucket 4 weeks', '1800000000000000 0', 0, 9, 10"


def fill(url: str, keys: int) -> None:
    """Rows of other keys, as hits would leave them."""
    if url.startswith("sqlite"):
        numbers = f"WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {keys})"
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection, connection:
            instant = "1800000000000000 + n % 10000 * 60000000"
            connection.execute(f"INSERT INTO headgate_states ({COLUMNS}) {numbers} SELECT {ROW}, 0, {instant} FROM n")
        return
    import psycopg

    row = ROW.replace("substr(", "right(").replace(", -22)", ", 22)")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO headgate_states ({COLUMNS}) SELECT {row}, now(), now() + n % 10000 * interval '1 minute' "
            f"FROM generate_series(1, {keys}) AS n"
        )
        connection.execute("VACUUM ANALYZE headgate_states")


def size_of(url: str) -> int:
    if url.startswith("sqlite"):
        return os.path.getsize(url.removeprefix("sqlite://"))
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_total_relation_size('headgate_states')").fetchone()
        assert row is not None
        return int(row[0])


def _ours(url: str, amount: int, keys: int) -> Hit:
    from headgate import Limiter
    from headgate.stores import open_store

    patient = "deadline=10" if url.startswith("sqlite") else "deadline=10&connect_timeout=10"
    store = open_store(f"{url}?{patient}", None)
    limiter = Limiter(f"{amount}/{WEEKS} weeks by fixed-window", store=store, on_error="raise")
    return lambda key: bool(limiter.hit(f"key {key}"))


def _their_postgres(url: str, amount: int, keys: int) -> Hit:
    from psycopg_pool import ConnectionPool
    from pyrate_limiter import Duration, PostgresBucket, Rate, RateItem

    pool = ConnectionPool(url, min_size=1, max_size=4, open=True)
    rates = [Rate(amount, Duration.WEEK * WEEKS)]
    buckets = [PostgresBucket(pool, f"b{key}", rates) for key in range(keys)]
    return lambda key: bool(buckets[key].put(RateItem("key", buckets[key].now())))


def _their_sqlite(url: str, amount: int, keys: int) -> Hit:
    from pyrate_limiter import Duration, Rate, RateItem, SQLiteBucket

    path, rates = url.removeprefix("sqlite://"), [Rate(amount, Duration.WEEK * WEEKS)]
    buckets = [
        SQLiteBucket.init_from_file(rates, table=f"b{key}", db_path=path, use_file_lock=True) for key in range(keys)
    ]
    return lambda key: bool(buckets[key].put(RateItem("key", buckets[key].now())))


OPEN: dict[tuple[str, str], Callable[[str, int, int], Hit]] = {
    (OURS, POSTGRES): _ours,
    (OURS, SQLITE): _ours,
    (THEIRS, POSTGRES): _their_postgres,
    (THEIRS, SQLITE): _their_sqlite,
}


@contextmanager
def place(where: str, folder: str) -> Iterator[str]:
    """The URL of a database of the run's own, in memory if there is such a place, with its default settings."""
    if where == SQLITE:
        yield f"sqlite://{folder}/limits.db"
        return
    programs = next(iter(sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)
    if programs is None:
        raise MissingError("PostgreSQL is not installed: apt install postgresql")
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    os.chmod(folder, 0o777)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = f"{folder}/data"
    made = [*user, f"{programs}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    served = [
        *user,
        f"{programs}/postgres",
        "-D",
        data,
        "-p",
        str(port),
        "-k",
        folder,
        "-c",
        "listen_addresses=127.0.0.1",
    ]
    with open(Path(folder) / "log", "wb") as log:
        server = subprocess.Popen(served, stdout=log, stderr=log, cwd=folder)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        _wait_for(url)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # does not wait for clients
        server.wait()
        shutil.rmtree(data, ignore_errors=True)


def _wait_for(url: str) -> None:
    import psycopg

    until = monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.Error:
            if monotonic() > until:
                raise MissingError("PostgreSQL does not start") from None
            sleep(0.05)
        else:
            return
