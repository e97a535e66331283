"""A fleet of four processes with one budget, against a real server: one process is killed, and the store goes away."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headgate import Limiter
from headgate.engine import NATIVE
from tests.support import ROOT
from tests.support.servers import BINARIES, Server, wait_until
from tests.support.serving import in_thread

pytestmark = pytest.mark.engineless

PROCESSES = 4
TASKS = 16
LIMIT = "50/second"
ALLOWED = "60/second by sliding-log"
"""The limit of the server. On a busy machine requests that left in time arrive together; four processes that each took
the whole budget for their own would still send three times as many."""


class Api(ThreadingHTTPServer):
    """A server with a limit of its own, an exact one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.limiter = Limiter(ALLOWED)
        self.statuses: Counter[int] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        decision = self.server.limiter.hit("fleet")
        status = 200 if decision else 429
        self.server.statuses[status] += 1
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if not decision:
            self.send_header("Retry-After", str(math.ceil(decision.retry_after)))
        self.end_headers()


@pytest.fixture
def api() -> Iterator[Api]:
    with in_thread(Api()) as server:
        yield server


@contextmanager
def fleet(api: Api, store: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Four processes that send, each of which has had its first answer."""
    command = [sys.executable, "-m", "tests.support.budget_worker", api.url, store, LIMIT, str(TASKS)]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(PROCESSES)
        ]
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "sent\n"
            yield workers
        finally:
            for worker in workers:
                worker.kill()


def counts_of(worker: subprocess.Popen[str]) -> Counter[str]:
    """End a worker, and return what its callers have seen."""
    told, _ = worker.communicate("", timeout=60)
    return Counter(json.loads(told))


def more_than(api: Api, number: int) -> None:
    """Wait until the server has answered as many requests more."""
    before = api.statuses.total()
    wait_until(lambda: api.statuses.total() > before + number, f"{number} more requests", 60)


@pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
def test_a_process_that_is_killed_costs_the_others_nothing(api, tmp_path):
    """Three of four go on at the whole rate, and the exact log of the server refuses hardly anything."""
    with fleet(api, f"shared://{tmp_path}/budget") as workers:
        more_than(api, 50)
        workers[0].kill()
        more_than(api, 100)
        seen = [counts_of(worker) for worker in workers[1:]]
    assert all(set(counts) <= {"200", "refused here"} for counts in seen), seen
    assert all(counts["200"] > 10 for counts in seen), seen
    assert api.statuses[429] <= 2, "a refusal, and a request that was under way"


@pytest.mark.soak
@pytest.mark.skipif("valkey" not in BINARIES, reason="needs a server")
def test_a_store_that_goes_away_stops_no_caller(api):
    """Each process keeps to the limit alone then, listens to refusals, and raises no foreign error."""
    with Server() as store, fleet(api, store.url) as workers:
        more_than(api, 50)
        store.kill()
        time.sleep(0.1)
        more_than(api, 100)
        seen = [counts_of(worker) for worker in workers]
    assert all(set(counts) <= {"200", "429", "refused here"} for counts in seen), seen
    assert all(counts["200"] > 0 for counts in seen), seen
