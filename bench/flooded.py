"""Services on real servers that are asked for five times as much as they can serve, with a load shedder and without."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bench.contestant import MissingError, WorkloadError
from bench.flooded_services import SERVICE, SERVICES, SHED, THREADS, Service
from bench.harness import ROOT
from bench.measure import Figures
from bench.open_load import HOST, Heard
from bench.server import _free_port, _listens
from bench.web_serve import FAST, PLAIN, cores

LOAD = 5
"""The open load, as a multiple of what the service can serve."""
FEW = 0.2
"""The load at which a service is called unloaded."""
SECONDS = 6.0
MOST_LAG = 100.0
"""Milliseconds that the client may be behind its own plan."""


def flooded(name: str) -> Figures:
    """Goodput and latency: unloaded, at the peak, and under five times the load, with a shedder and without."""
    service = SERVICES[name]
    with serving(service) as port:
        unloaded = ask(service, port, FEW * service.rate)
        peak = ask(service, port, -2 * (service.places or 2))
        without = ask(service, port, LOAD * service.rate, lag=math.inf)  # it drowns, and its clients in connections
    with serving(service, shed=True) as port:
        few = ask(service, port, FEW * service.rate)
        shed = ask(service, port, LOAD * service.rate, 2 * SECONDS)
    if few.busy or unloaded.ok != unloaded.asked or peak.ok != peak.asked or without.busy or not shed.busy:
        raise WorkloadError(f"{name}: {unloaded}, {peak}, {without}, {few}, {shed}")
    rates = {each: heard.ok / heard.seconds for each, heard in (("peak", peak), ("with", shed), ("without", without))}
    return {
        **rates,
        "goodput": rates["with"] / rates["peak"],
        "p99_unloaded": unloaded.p99,
        "p99": shed.p99,
        "slowdown": shed.p99 / unloaded.p99,
        "refused": 100 * shed.busy / shed.asked,
        "late": 100 * (shed.late + shed.other) / shed.asked,
    }


def ask(service: Service, port: int, rate: float, seconds: float = SECONDS, lag: float = MOST_LAG) -> Heard:
    """In a process of its own, on cores of its own."""
    _, core = cores()
    pin = ["taskset", "-c", ",".join(map(str, sorted(core)))] if core and shutil.which("taskset") else []
    wire = {"uvicorn": "asgi", "gunicorn": "wsgi", "grpc": "grpc"}[service.server]
    words = [sys.executable, "-m", "bench.open_load", wire, str(port), str(rate), str(seconds)]
    done = subprocess.run([*pin, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WorkloadError(f"the client of {service.name} ended with {done.returncode}")
    heard = Heard(**json.loads(done.stdout))
    if rate > 0 and (heard.lag > lag or heard.asked < 0.8 * rate * heard.seconds):
        raise WorkloadError(f"{service.name}: the client could not ask {rate} times a second: {heard}")
    return heard


@contextmanager
def serving(service: Service, shed: bool = False) -> Iterator[int]:
    if find_spec(service.server) is None:
        raise MissingError(f"{service.server} is not installed")
    port, (core, _) = _free_port(), cores()
    environment = {**os.environ, SERVICE: service.name, **({SHED: "1"} if shed else {})}
    words = [sys.executable, "-m", *words_of(service, port)]
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        if core:
            os.sched_setaffinity(process.pid, core)
        if not _listens(process, port):
            raise MissingError(f"{service.server} does not start")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # also gunicorn's worker, which has thousands of requests under way
        process.wait()


def words_of(service: Service, port: int) -> list[str]:
    if service.server == "grpc":
        return ["bench.flooded_services", str(port)]
    if service.server == "uvicorn":
        wire = FAST if service.fast else PLAIN
        quiet = ["--log-level", "error", "--no-access-log", "--no-proxy-headers", "--backlog", "4096"]
        return ["uvicorn", "bench.flooded_services:app", "--host", HOST, "--port", str(port), *wire, *quiet]
    threads = ["--worker-class", "gthread", "--threads", str(THREADS), "--keep-alive", "60", "--log-level", "critical"]
    return ["gunicorn", "bench.flooded_services:app", "--bind", f"{HOST}:{port}", *threads]
