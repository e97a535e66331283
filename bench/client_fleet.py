"""A fleet of processes that ask one server for more than it allows; the server counts."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from time import monotonic, sleep

from bench.client_callers import BARE, BOTOCORE, LEARNED, PUBLISHED, RETRIES, TENACITY
from bench.client_servers import RATE, SERVERS, SILENT, Counted, counted_server
from bench.contestant import MissingError, WorkloadError
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import HOST, serving
from bench.sharer import own_directory

PROCESSES, TASKS = 4, 64
WARM_UP = 2
"""Seconds that are not counted: processes start one after another, and a bucket is full at first."""
LONGEST_START = 30
NEEDED = {TENACITY: ("tenacity",), RETRIES: ("httpx", "httpx_retries"), BOTOCORE: ("httpx", "botocore")}
AT_REDIS = "headgate, published, on Redis"
LOG = "uvicorn, sliding log"
FLEETS = (
    *(f"{PUBLISHED} | {server}" for server in SERVERS),
    f"{AT_REDIS} | {LOG}",
    *(f"{LEARNED} | {server}" for server in SERVERS),
    *(f"{name} | {server}" for name in (BARE, TENACITY, RETRIES, BOTOCORE) for server in (LOG, SILENT)),
)


def fleet(name: str, seconds: float) -> Figures:
    """What a server admitted, of its rate, and what it refused, of all requests."""
    caller, server = name.split(" | ")
    if caller == AT_REDIS:
        with serving() as redis:
            return ask(PUBLISHED, server, redis.url, seconds)
    with own_directory() as directory:
        return ask(caller, server, f"shared://{directory}/fleet", seconds)


def ask(caller: str, server: str, store: str, seconds: float) -> Figures:
    check_installed(caller)
    warm_up = seconds / 2 if caller == LEARNED and server == SILENT else WARM_UP
    with counted_server(server) as counted:
        span = LONGEST_START + seconds + warm_up
        words = [caller, f"http://{HOST}:{counted.port}/", store, str(TASKS), str(span)]
        processes = [
            subprocess.Popen([sys.executable, "-m", "bench.client_callers", *words], cwd=ROOT) for _ in range(PROCESSES)
        ]
        try:
            return count(counted, caller, warm_up, seconds)
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def count(counted: Counted, caller: str, warm_up: float, seconds: float) -> Figures:
    until = monotonic() + LONGEST_START
    while not counted.now().passed and monotonic() < until:
        sleep(0.1)
    sleep(warm_up)
    before = counted.now()
    sleep(seconds)
    after = counted.now()
    passed, refused = after.passed - before.passed, after.refused - before.refused
    if not passed:
        raise WorkloadError(f"{caller}: no request passed")
    allowed = RATE * (after.at - before.at)
    if passed > 1.2 * allowed:
        raise WorkloadError(f"{caller}: {passed} passed where {allowed:.0f} are allowed: the server does not limit")
    return {"used": 100 * passed / allowed, "refused": 100 * refused / (passed + refused), "passed": passed}


def check_installed(caller: str) -> None:
    for package in NEEDED.get(caller, ()):
        if find_spec(package) is None:
            raise MissingError(f"{package} is not installed")
