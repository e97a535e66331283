"""Apps on real servers, one worker each: the limited app and its bare twin, loaded in turn by a client of its own."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.contestant import MissingError
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import _free_port, _listens
from bench.sharer import own_directory
from bench.web_apps import DIRECTORY, OPEN, VARIABLE, App, Wire, apps
from bench.web_calls import Answer, WorkloadError, check, prove
from bench.web_load import HOST, client, load

LONGER = 10
"""A run under load lasts so many times as long as one of calls in process, and at least a second."""
SERVERS: dict[Wire, tuple[str, list[str]]] = {
    "asgi": ("uvicorn", ["--log-level", "error", "--no-access-log", "--no-proxy-headers"]),
    "aiohttp": ("aiohttp", []),
    # Threads, because gunicorn's plain worker closes every connection.
    "wsgi": ("gunicorn", ["--log-level", "error", "--worker-class", "gthread", "--threads", "2", "--keep-alive", "60"]),
}

PLAIN, FAST = ["--http", "h11", "--loop", "asyncio"], ["--http", "httptools", "--loop", "uvloop"]


class Served(NamedTuple):
    """A server and what it did in each run."""

    app: App
    port: int
    pid: int
    rates: list[float]
    cpu: list[float]
    """Microseconds of the processor for each request, by the system's account; empty where there is none."""

    def run(self, seconds: int, core: set[int]) -> None:
        check(self.app, fetch(self.port, OPEN), 200)
        before = cpu_seconds(self.pid)
        done = load(self.port, OPEN, seconds, core)
        after = cpu_seconds(self.pid)
        if done.other or not done.requests:
            raise WorkloadError(f"{self.app.name}: {done.other} of {done.requests} answers were not 2xx")
        self.rates.append(done.rate)
        if before is not None and after is not None:
            self.cpu.append((after - before) * 1e6 / done.requests)


def serve(name: str, seconds: float, repeats: int) -> Figures:
    """Requests a second, the best of all runs; and the ratio to the bare app, the median of neighbouring runs."""
    limited = apps()[name]
    bare = apps()[limited.bare]
    for_server, for_client = cores()
    span = max(1, round(LONGER * seconds))
    with own_directory() as directory, ExitStack() as running:
        pair = [
            running.enter_context(running_server(app, directory, for_server, limited.fast)) for app in (bare, limited)
        ]
        for each in pair:
            prove(each.app, lambda path, port=each.port: fetch(port, path))
            load(each.port, OPEN, 1, for_client)
        for _ in range(repeats):
            for each in pair:
                each.run(span, for_client)
    without, with_it = pair
    figures = {
        "call": f"{SERVERS[limited.wire][0]}{', uvloop' if limited.fast else ''}, {client()}",
        "rate": max(with_it.rates),
        "bare_rate": max(without.rates),
        "ratio": median_ratio(with_it.rates, without.rates),
        "seconds": span,
        "repeats": repeats,
    }
    if without.cpu and with_it.cpu:
        by_cpu = {"cpu_us": min(with_it.cpu), "bare_cpu_us": min(without.cpu)}
        figures |= {**by_cpu, "cpu_ratio": median_ratio(without.cpu, with_it.cpu)}
    return figures


def median_ratio(ones: list[float], others: list[float]) -> float:
    return median(one / other for one, other in zip(ones, others, strict=True))


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process and of its children: gunicorn's worker is one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) or 0 for child in children)


def cores() -> tuple[set[int], set[int]]:
    """Of the server and of the client: never the same where there are two."""
    if not hasattr(os, "sched_getaffinity"):
        return set(), set()
    found = sorted(os.sched_getaffinity(0))
    return ({found[0]}, set(found[1:])) if len(found) > 1 else (set(found), set(found))


def words(server: str, options: list[str], port: int, fast: bool) -> list[str]:
    """What each server is called with."""
    if server == "aiohttp":
        return ["bench.framework_apps", str(port)]
    if server == "uvicorn":
        place = ["--host", HOST, "--port", str(port), *(FAST if fast else PLAIN)]
    else:
        place = ["--bind", f"{HOST}:{port}"]
    return [server, "bench.web_apps:app", *place, *options]


@contextmanager
def running_server(app: App, directory: str, core: set[int], fast: bool) -> Iterator[Served]:
    server, options = SERVERS[app.wire]
    for package in (server, *(("httptools", "uvloop") if fast else ())):
        if find_spec(package) is None:
            raise MissingError(f"{package} is not installed")
    if not app.name.endswith("shared") and "Django" not in app.name:
        app.make()  # what is missing is missing here, not in the server
    port = _free_port()
    environment = {**os.environ, VARIABLE: app.name, DIRECTORY: directory}
    process = subprocess.Popen([sys.executable, "-m", *words(server, options, port, fast)], cwd=ROOT, env=environment)
    try:
        if core:
            os.sched_setaffinity(process.pid, core)
        if not _listens(process, port):
            raise MissingError(f"{server} does not start with {app.name}")
        yield Served(app, port, process.pid, [], [])
    finally:
        process.terminate()
        process.wait()


def fetch(port: int, path: str) -> Answer:
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower().encode() for name, _ in answer.getheaders()}
    finally:
        connection.close()
