"""The decision service beside a bare uvicorn echo: both get the same request of a proxy, in turn, over HTTP."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any, NamedTuple

from bench.contestant import MissingError, WorkloadError
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import _free_port, _listens
from bench.sharer import own_directory
from bench.web_serve import cores, cpu_seconds, median_ratio

CHECK = "GET /check, 20 rules, header fields"
HOST = "127.0.0.1"
RULES = 20
CONNECTIONS = 8
LONGER = 10
"""A run under load lasts so many times as long as one of calls in process, and at least a second."""
REQUEST = (
    b"GET /check HTTP/1.1\r\nHost: app.example.com\r\nUser-Agent: curl/8\r\nAccept: */*\r\n"
    b"X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /service-3/users?page=2\r\n"
    b"X-Forwarded-Host: app.example.com\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Server(NamedTuple):
    """A server, and what it did in each run."""

    name: str
    port: int
    pid: int
    """Of the one process that serves."""
    rates: list[float]
    cpu: list[float]
    """Microseconds of the processor for each request."""

    def run(self, seconds: float, ask: Callable[[int, float], tuple[int, float]]) -> None:
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


def measure_edge(name: str, seconds: float, repeats: int) -> Figures:
    """CPU for a request and the most requests a second, in turn; then the latency at half of the lower peak."""
    for package in ("uvicorn", "httptools", "uvloop"):
        if find_spec(package) is None:
            raise MissingError(f"{package} is not installed")
    for_server, for_client = cores()
    if for_client:
        os.sched_setaffinity(0, for_client)
    span = max(1.0, LONGER * seconds)
    with own_directory() as directory, ExitStack() as running:
        echo = running.enter_context(echoing(for_server))
        begin = perf_counter()
        service = running.enter_context(deciding(directory, for_server))
        ready = perf_counter() - begin
        for each in (echo, service):
            asked(each.port, 0.5)
        for _ in range(repeats):
            for each in (echo, service):
                each.run(span, asked)
        rate = min(max(each.rates) for each in (echo, service)) / 2
        late = {each.name: [paced(each.port, rate, span) for _ in range(repeats)] for each in (echo, service)}
    return {
        "call": name,
        "ready": ready,
        "rate": max(service.rates),
        "bare_rate": max(echo.rates),
        "cpu_us": min(service.cpu),
        "bare_cpu_us": min(echo.cpu),
        "cpu_ratio": median_ratio(echo.cpu, service.cpu),
        "p99_ms": median(late[service.name]) * 1e3,
        "bare_p99_ms": median(late[echo.name]) * 1e3,
    }


def asked(port: int, seconds: float, request: bytes = REQUEST) -> tuple[int, float]:
    """Ask as fast as the answers come; return their number and the seconds that they took."""
    answers = 0
    with connected(port) as (selector, connections):
        for each in connections:
            each.sendall(request)
        start = perf_counter()
        while (now := perf_counter()) < start + seconds:
            for key, _ in selector.select(1):
                if complete(key):
                    answers += 1
                    key.fileobj.sendall(request)  # type: ignore[union-attr]
    if not answers:
        raise WorkloadError("there was no answer")
    return answers, now - start


def paced(port: int, rate: float, seconds: float) -> float:
    """Ask at a rate, whenever answers come; return the 99th percentile of the seconds from due to answered."""
    count, waits, due = int(rate * seconds), list[float](), deque[float]()
    sent: dict[int, float] = {}
    with connected(port) as (selector, connections):
        idle, start, at = deque(connections), perf_counter(), 0
        while len(waits) < count and perf_counter() < start + 3 * seconds:
            while at < count and start + at / rate <= perf_counter():
                due.append(start + at / rate)
                at += 1
            while due and idle:
                each = idle.popleft()
                sent[each.fileno()] = due.popleft()
                each.sendall(REQUEST)
            for key, _ in selector.select(max(0.0, start + at / rate - perf_counter()) if at < count else 1):
                if complete(key):
                    waits.append(perf_counter() - sent[key.fd])
                    idle.append(key.fileobj)  # type: ignore[arg-type]
    if len(waits) < count:
        raise WorkloadError(f"{count - len(waits)} of {count} requests at {rate:.0f}/s had no answer")
    return quantiles(waits, n=100)[-1]


@contextmanager
def connected(port: int) -> Iterator[tuple[selectors.BaseSelector, list[socket.socket]]]:
    """Connections that are kept; the data of each in the selector is what was read of its answer."""
    with selectors.DefaultSelector() as selector, ExitStack() as closing:
        connections = [closing.enter_context(socket.create_connection((HOST, port), 5)) for _ in range(CONNECTIONS)]
        for each in connections:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(each, selectors.EVENT_READ, bytearray())
        yield selector, connections


def complete(key: selectors.SelectorKey) -> bool:
    """Read what there is of an answer; whether that is all of it."""
    connection: Any = key.fileobj
    key.data.extend(connection.recv(65_536))
    head, blank, body = bytes(key.data).partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    if not blank or (length and len(body) < int(length[1])):
        return False
    if head[9:10] != b"2":
        raise WorkloadError(f"the answer was {head!r}")
    key.data.clear()
    return True


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
