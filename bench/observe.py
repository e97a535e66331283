"""What counting costs: the same engine is built once more without it, and both are run in turn.

Nothing in the product can switch counts off, so this copy is the only honest "without": the same sources, compiled with
the same flags, of which two functions lose their counting lines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.contestant import WorkloadError
from bench.harness import ROOT
from bench.measure import Figures
from bench.observe_apps import PROMETHEUS, TELEMETRY
from bench.observe_top import measure_top
from bench.web_calls import REFUSED

COUNTED, SCRAPED, WATCHED = "counting", "a scrape", "headgate top"
RULES, WORKERS, KEYS = 200, 8, 1_000
TURNS = 3
"""Processes of each kind, in turn."""
HIT = ("time", "headgate token-bucket")
PLAIN = ("call", "ASGI, headgate")
PAIRS = {
    "hit": (HIT, HIT),
    "prometheus": (PLAIN, ("call", PROMETHEUS)),
    "telemetry": (PLAIN, ("call", TELEMETRY)),
    "refused": (("call", f"ASGI, headgate{REFUSED}"), ("call", f"{PROMETHEUS}{REFUSED}")),
}
"""A job for the engine without counting, and one for the engine with it."""
CUT = {
    "tally.pxi": ("    with cython.critical_section(tally):\n        if decision.allowed:", "    return 0\n"),
    "counted_run.pxi": ("        if decision.allowed:\n            for tally in", "        return decision\n"),
}  # fmt: skip
"""In each file: the line at which a function begins to count, and what it does instead."""


def measure_observe(name: str, seconds: float, repeats: int) -> Figures:
    if name == COUNTED:
        return counting(seconds, repeats)
    return scrape() if name == SCRAPED else measure_top(RULES, KEYS)


def counting(seconds: float, repeats: int) -> Figures:
    """Nanoseconds with counting and without, of a hit and of requests."""
    with without_counting() as source:
        found: Figures = {}
        for _ in range(TURNS):
            for name, jobs in PAIRS.items():
                for side, (kind, contestant), path in zip(("without", "with"), jobs, (source, None), strict=True):
                    ns = run(kind, contestant, path, seconds, repeats)
                    found[f"{name} {side}"] = min(ns, found.get(f"{name} {side}", ns))
        return found


def run(kind: str, contestant: str, source: Path | None, seconds: float, repeats: int) -> float:
    """Run a job of the harness in a process of its own, with headgate from this folder."""
    given = {"job": {"kind": kind, "contestant": contestant}, "scale": {"seconds": seconds, "repeats": repeats}}
    env = os.environ | ({} if source is None else {"PYTHONPATH": f"{source}"})
    done = subprocess.run(
        [sys.executable, "-m", "bench.worker", json.dumps(given)],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    figures = json.loads(done.stdout)
    if "ns" not in figures:
        raise WorkloadError(f"{contestant}: {figures}")
    return float(figures["ns"])


@contextmanager
def without_counting() -> Iterator[Path]:
    """The sources with an engine that counts nothing, and proof of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("src", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        engine = root / "src/headgate/engine"
        for name, (start, instead) in CUT.items():
            text = (engine / name).read_text()
            before, found, rest = text.partition(start)
            if not found:
                raise WorkloadError(f"{name} counts in other words than this benchmark knows")
            _, end, after = rest.partition("\n\n\n")
            (engine / name).write_text(before + instead + end + after)
        for old in engine.glob("*.so"):
            old.unlink()
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=root, check=True, capture_output=True)
        prove(root / "src", 0)
        prove(ROOT / "src", 1)
        yield root / "src"


def prove(source: Path, expected: int) -> None:
    """A hit is counted so often, by the native engine."""
    told = "from headgate import Limiter; from headgate.engine import NATIVE; each = Limiter('2/hour'); each.hit('k');"
    told += "print(NATIVE, each.counts().allowed)"
    env = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", told], env=env, capture_output=True, text=True, check=True)
    if done.stdout.split() != ["True", str(expected)]:
        raise WorkloadError(f"an engine in {source} tells {done.stdout!r} after a hit, not {expected}")


def scrape() -> Figures:
    """Milliseconds of a scrape, by the library, in one of the workers whose lists of keys are full."""
    from prometheus_client import CollectorRegistry, generate_latest

    from headgate.observe.directory import Directory
    from headgate.observe.prometheus import export

    with tempfile.TemporaryDirectory() as folder:
        app, registry = busy_app(), CollectorRegistry()
        others = [Directory(Path(folder) / "watch") for _ in range(WORKERS - 1)]
        for each in others:
            each.write(app.snapshot())
        collector = export(app, publish=f"{folder}/watch", registry=registry)
        spans = []
        for _ in range(20):
            begin = perf_counter()
            text = generate_latest(registry)
            spans.append((perf_counter() - begin) * 1e3)
        collector.close()
        refused = sum(float(line.split()[-1]) for line in text.decode().splitlines() if 'result="refused"' in line)
        own = sum(rule["counts"]["refused"] for rule in app.snapshot()["rules"])
        if refused != WORKERS * own or len(text.splitlines()) < 7 * RULES:
            raise WorkloadError(f"a scrape tells {refused} refusals of {WORKERS} times {own}")
        return {"ms": median(spans), "best_ms": min(spans)}


def busy_app() -> object:
    """An app with many rules, which has refused more keys than its list has places."""
    from headgate.web.wsgi import RateLimitMiddleware

    rules = [{"name": f"r{at}", "match": {"path": f"/{at}"}, "key": "ip", "limits": "1/hour"} for at in range(RULES)]

    def hello(environ: object, start_response: object) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    app = RateLimitMiddleware(hello, {"rules": rules})
    for at in range(3 * KEYS):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": f"/{at % RULES}", "REMOTE_ADDR": f"10.0.{at >> 8}.{at & 255}"}
        for _ in range(30):
            list(app(dict(environ), lambda *_: None))
    if [len(app.snapshot()[name]) for name in ("refused_keys", "busiest_keys")] != [KEYS, KEYS]:
        raise WorkloadError("the lists of keys are not full")
    return app
