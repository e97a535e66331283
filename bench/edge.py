"""The decision service beside a bare uvicorn echo: both get the same request of a proxy, in turn, over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

from bench.contestant import MissingError
from bench.edge_load import Done, ask, paced
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import _free_port, _listens
from bench.sharer import own_directory
from bench.web_load import HOST
from bench.web_serve import cores, cpu_seconds, median_ratio

CHECK = "GET /check, 20 rules, header fields"
RULES = 20
LONGER = 10
"""A run under load lasts so many times as long as one of calls in process, and at least a second."""
REQUEST = (
    b"GET /check HTTP/1.1\r\nHost: app.example.com\r\nUser-Agent: curl/8\r\nAccept: */*\r\n"
    b"X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /service-3/users?page=2\r\n"
    b"X-Forwarded-Host: app.example.com\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
)


class Server(NamedTuple):
    """A server, and what it did in each run."""

    name: str
    port: int
    pid: int
    """Of the one process that serves."""
    rates: list[float]
    cpu: list[float]
    """Microseconds of the processor for each request."""

    def run(self, seconds: float, ask: Callable[[int, float], Done]) -> None:
        before = cpu_seconds(self.pid)
        answers, spent = ask(self.port, seconds)
        after = cpu_seconds(self.pid)
        self.rates.append(answers / spent)
        if before is not None and after is not None:
            self.cpu.append((after - before) * 1e6 / answers)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The bare echo."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def prepared(*packages: str) -> tuple[set[int], set[int]]:
    """Move this process to the cores of clients; return the cores of servers, and these."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingError(f"{package} is not installed")
    for_server, for_client = cores()
    if for_client:
        os.sched_setaffinity(0, for_client)
    return for_server, for_client


def in_turn(servers: list[Server], seconds: float, repeats: int, ask: Callable[[int, float], Done]) -> None:
    """Load each server for a while, again and again; the first run of each is not counted."""
    for each in servers:
        ask(each.port, seconds)
    for _ in range(repeats):
        for each in servers:
            each.run(seconds, ask)


def beside(bare: Server, service: Server) -> Figures:
    """What a service did, beside a server that does nothing."""
    return {
        "rate": max(service.rates),
        "bare_rate": max(bare.rates),
        "cpu_us": min(service.cpu),
        "bare_cpu_us": min(bare.cpu),
        "cpu_ratio": median_ratio(bare.cpu, service.cpu),
    }


def measure_edge(name: str, seconds: float, repeats: int) -> Figures:
    """CPU for a request and the most requests a second, in turn; then the latency at half of the lower peak."""
    for_server, _ = prepared("uvicorn", "httptools", "uvloop")
    span = max(1.0, LONGER * seconds)
    with own_directory() as directory, ExitStack() as running:
        echo = running.enter_context(echoing(for_server))
        begin = perf_counter()
        service = running.enter_context(deciding(directory, for_server))
        ready = perf_counter() - begin
        in_turn([echo, service], span, repeats, lambda port, time: ask(port, REQUEST, time))
        rate = min(max(each.rates) for each in (echo, service)) / 2
        late = [median(paced(each.port, REQUEST, rate, span) for _ in range(repeats)) * 1e3 for each in (echo, service)]
    return {"call": name, "ready": ready, "bare_p99_ms": late[0], "p99_ms": late[1], **beside(echo, service)}


@contextmanager
def echoing(core: set[int]) -> Iterator[Server]:
    port = _free_port()
    words = ["uvicorn", "bench.edge:app", "--port", str(port), "--http", "httptools", "--loop", "uvloop"]
    quiet = ["--log-level", "error", "--no-access-log", "--no-proxy-headers", "--no-server-header", "--no-date-header"]
    with ended(subprocess.Popen([sys.executable, "-m", *words, *quiet], cwd=ROOT)) as process:
        if not _listens(process, port):
            raise MissingError("uvicorn does not start")
        pin(process.pid, core)
        yield Server("echo", port, process.pid, [], [])


@contextmanager
def deciding(directory: str, core: set[int]) -> Iterator[Server]:
    """`headgate serve`, ready; the rules are by path, one applies beside one for every path."""
    policy = Path(directory) / "policy.json"
    rules = [
        {"name": f"service-{at}", "match": {"path": f"/service-{at}/**"}, "key": "ip", "limits": "1000000000/week"}
        for at in range(1, RULES)
    ]
    policy.write_text(json.dumps({"rules": [*rules, {"name": "site", "key": "ip", "limits": "2000000000/week"}]}))
    port = _free_port()
    options = ["--policy", str(policy), "--workers", "1", "--listen", f"{HOST}:{port}"]
    with started(options) as (_, (worker,)):
        pin(worker, core)
        yield Server("headgate", port, worker, [], [])


@contextmanager
def started(options: list[str]) -> Iterator[tuple[bytes, list[int]]]:
    """`headgate serve`, when it is ready: the line that says so, and its workers in the order of their start."""
    words = [sys.executable, "-m", "headgate", "serve", *options]
    with ended(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith(b"ready"):
            if not line:
                raise MissingError("headgate serve does not start")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield line, [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        sleep(0.1)
        if process.poll() is None:
            process.terminate()  # the second time: now
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def pin(pid: int, core: set[int]) -> None:
    if core:
        os.sched_setaffinity(pid, core)
