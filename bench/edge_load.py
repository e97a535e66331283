"""Clients for the decision service: wrk and h2load where they are installed, else clients of this bench."""

from __future__ import annotations

import re
import selectors
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import Any

from bench import grpc_load
from bench.contestant import WorkloadError
from bench.web_load import CONNECTIONS, HOST, LENGTH, read_wrk

Done = tuple[int, float]
"""The number of answers, and the seconds that they took."""
ASKING = "wrk" if shutil.which("wrk") else "a client of this bench"
CALLING = "h2load" if shutil.which("h2load") else "a client of this bench"


def ask(port: int, request: bytes, seconds: float) -> Done:
    """Ask over HTTP as fast as the answers come."""
    return ask_by_wrk(port, request, seconds) if shutil.which("wrk") else ask_by_bench(port, request, seconds)


def ask_by_wrk(port: int, request: bytes, seconds: float) -> Done:
    line, *fields = request.decode().rstrip().split("\r\n")
    headers = [word for field in fields for word in ("-H", field)]
    words = [
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{round(seconds)}s",
        *headers,
        f"http://{HOST}:{port}{line.split()[1]}",
    ]
    done = read_wrk(output(words))
    if done.other or not done.requests:
        raise WorkloadError(f"{done.other} of {done.requests} answers were not 2xx")
    return done.requests, done.requests / done.rate


def output(words: list[str]) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WorkloadError(f"{words[0]} ended with {done.returncode}")
    return done.stdout


def call(port: int, path: str, message: bytes, seconds: float) -> Done:
    """Call over gRPC as fast as the answers come."""
    if shutil.which("h2load") is None:
        return grpc_load.call(port, path, message, seconds)
    with NamedTemporaryFile() as file:
        file.write(b"\0" + len(message).to_bytes(4, "big") + message)
        file.flush()
        how = ["-t1", f"-c{grpc_load.CONNECTIONS}", f"-m{grpc_load.UNDER_WAY}", f"-D{round(seconds)}", "-d", file.name]
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        return read_h2load(output(["h2load", *how, *headers, f"http://{HOST}:{port}{path}"]))


def read_h2load(text: str) -> Done:
    rate, answers = re.search(r"([\d.]+) req/s", text), re.search(r"status codes: (\d+) 2xx, (.*)", text)
    failures = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", text)
    if rate is None or answers is None or failures is None or not float(rate[1]):
        raise WorkloadError(f"h2load said: {text!r}")
    if any(map(int, failures.groups())) or any(map(int, re.findall(r"(\d+) [345]xx", answers[2]))):
        raise WorkloadError(f"some calls failed: {text!r}")
    return int(answers[1]), int(answers[1]) / float(rate[1])


def ask_by_bench(port: int, request: bytes, seconds: float) -> Done:
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


def paced(port: int, request: bytes, rate: float, seconds: float) -> float:
    """Ask at a rate, whenever answers come; return the 99th percentile of the seconds from due to answered.

    wrk cannot: it sends the next request when an answer has come, and so leaves out those that would have waited.
    """
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
                each.sendall(request)
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
