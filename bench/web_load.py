"""A client that asks as fast as it is answered, over a few connections: wrk where there is one, else this file.

`python -m bench.web_load PORT PATH SECONDS` prints a line of JSON.
"""

from __future__ import annotations

import json
import re
import selectors
import shutil
import socket
import subprocess
import sys
from time import perf_counter
from typing import Any, NamedTuple

from bench.contestant import WorkloadError

HOST = "127.0.0.1"
CONNECTIONS = 8
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Load(NamedTuple):
    rate: float
    """Requests a second."""
    requests: int
    other: int
    """Answers that were not 2xx, and connections that failed."""


def client() -> str:
    return "wrk" if shutil.which("wrk") else "bench.web_load"


def load(port: int, path: str, seconds: int, core: set[int]) -> Load:
    """In a process of its own, on cores of its own."""
    if client() == "wrk":
        words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", f"http://{HOST}:{port}{path}"]
    else:
        words = [sys.executable, "-m", "bench.web_load", str(port), path, str(seconds)]
    pin = ["taskset", "-c", ",".join(map(str, sorted(core)))] if core and shutil.which("taskset") else []
    done = subprocess.run([*pin, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WorkloadError(f"the client ended with {done.returncode}")
    return read_wrk(done.stdout) if client() == "wrk" else Load(**json.loads(done.stdout))


def read_wrk(text: str) -> Load:
    rate = re.search(r"Requests/sec:\s*([\d.]+)", text)
    requests = re.search(r"(\d+) requests in", text)
    if rate is None or requests is None:
        raise WorkloadError(f"wrk said: {text!r}")
    bad = [int(each) for each in re.findall(r"Non-2xx or 3xx responses: (\d+)", text)]
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    failed = sum(map(int, errors.groups())) if errors else 0
    return Load(float(rate[1]), int(requests[1]), sum(bad) + failed)


class Connection:
    """One request at a time. A server that closes is connected to anew."""

    def __init__(self, port: int, path: str, selector: selectors.BaseSelector) -> None:
        self._port, self._selector = port, selector
        self._request = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection((HOST, self._port), 5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self._socket, selectors.EVENT_READ, self)
        self._read = b""
        self._socket.sendall(self._request)

    def answered(self) -> int | None:
        """The status of an answer that is complete, and the next request is on its way; None while it is not."""
        data = self._socket.recv(65536)
        if not data:
            self.close()
            self._open()
            return None
        self._read += data
        head, blank, body = self._read.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not blank or (length and len(body) < int(length[1])):
            return None
        self._read = b""
        if b"connection: close" in head.lower():
            self.close()
            self._open()
        else:
            self._socket.sendall(self._request)
        return int(head[9:12])

    def close(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()


def ask_for(port: int, path: str, seconds: float) -> Load:
    requests = other = 0
    with selectors.DefaultSelector() as selector:
        connections = [Connection(port, path, selector) for _ in range(CONNECTIONS)]
        start = perf_counter()
        while (now := perf_counter()) < start + seconds:
            for key, _ in selector.select(1):
                connection: Any = key.data
                status = connection.answered()
                if status is not None:
                    requests += 1
                    other += not 200 <= status < 300
        for connection in connections:
            connection.close()
    return Load(requests / (now - start), requests, other)


if __name__ == "__main__":
    print(json.dumps(ask_for(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))._asdict()))
