"""The decision service for long: a million requests of many clients, and no memory more."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from tests.support import soaking
from tests.support.edge import HOST, serving

pytestmark = [pytest.mark.soak, pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes")]
AT_ONCE = 50
REQUESTS = int(soaking.SECONDS / 120 * 1_000_000) // AT_ONCE * AT_ONCE
GROWTH = 8 * 2**20
"""Bytes that a worker may grow by after its caches are full."""
POLICY = """\
rules:
  - {name: users, match: {path: "/users/{id}"}, key: [ip, {param: id}], limits: 100/minute}
  - {name: keys, match: {path: /keys/**}, key: {header: x-api-key}, limits: 5/minute}
  - {name: site, key: ip, limits: 1000/minute}
"""


def asked(port: int, first: int, count: int) -> int:
    """Ask about requests of ever new paths, clients and keys, and hostile ones among them; return the answers."""
    answers = 0
    with socket.create_connection((HOST, port), 20) as connection:
        for start in range(first, first + count, AT_ONCE):
            connection.sendall(b"".join(question(number) for number in range(start, start + AT_ONCE)))
            heard = b""
            while heard.count(b"HTTP/1.1 ") < AT_ONCE or not re.search(rb"(\r\n\r\n|\}|\.)$", heard):
                heard += connection.recv(1 << 20)
            answers += heard.count(b"HTTP/1.1 ")
    return answers


def question(number: int) -> bytes:
    """One question of a proxy or of a program."""
    client = f"10.{number % 200}.{number // 200 % 250}.{number % 250}"
    if number % 10 == 9:
        body = json.dumps({"limit": f"{number % 300 + 1}/hour", "key": str(number)}).encode()
        return b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    path = f"/keys/{number}" if number % 3 else f"/users/{number}"
    told = f"X-Forwarded-Uri: {path}\r\nX-Forwarded-For: {client}\r\nX-Api-Key: {number}\r\nAccept: a/{number}\r\n"
    return f"GET /check HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: M{number % 5000}\r\n{told}\r\n".encode()


def memory(pid: int) -> int:
    """Bytes that only this process has."""
    found = re.findall(r"^Private_\w+:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return 1024 * sum(map(int, found))


def test_a_service_does_not_grow(tmp_path):
    """Paths, clients, keys, methods, limits and Accept lines that never come twice fill caches that are bounded."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "1") as service:
        (worker,) = service.workers()
        warm = REQUESTS // 4 // AT_ONCE * AT_ONCE
        assert asked(service.port, 0, warm) == warm
        before = memory(worker)
        assert asked(service.port, warm, REQUESTS - warm) == REQUESTS - warm
        assert memory(worker) - before < GROWTH
        assert service.workers() == [worker]
