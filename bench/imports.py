"""How long an import takes, in interpreters that have imported nothing before."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time

from bench.contestant import MissingError, WorkloadError

EMPTY = "an empty interpreter"
PLAIN = "headgate, and a hit"
FRESH = 20
"""Interpreters started; the quickest counts."""

CODE = {
    EMPTY: "",
    "headgate": "import headgate",
    PLAIN: "import headgate; assert headgate.Limiter('5/minute').hit('k').remaining == 4",
    "headgate AsyncLimiter": "from headgate import AsyncLimiter",
    "limits": "import limits",
    "throttled": "import throttled",
    "pyrate_limiter": "import pyrate_limiter",
}


def measure_import(name: str) -> dict[str, object]:
    """Milliseconds from start to end of the quickest interpreter, and the modules it ends with."""
    module = name.partition(" ")[0].rstrip(",")
    if name != EMPTY and importlib.util.find_spec(module) is None:
        raise MissingError(f"{module} is not installed")
    best, code = float("inf"), CODE[name]
    for _ in range(FRESH):
        begun = time.perf_counter()
        if subprocess.run([sys.executable, "-c", code], check=False).returncode:
            raise WorkloadError(f"{name}: {code!r} fails")
        best = min(best, time.perf_counter() - begun)
    counted = f"{code}\nimport sys; print(len(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", counted], check=True, capture_output=True, text=True).stdout
    return {"call": code or "pass", "ms": best * 1e3, "modules": int(modules)}
