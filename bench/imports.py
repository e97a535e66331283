"""How long an import takes, in interpreters that have imported nothing before."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from bench.contestant import MissingError, WorkloadError

EMPTY = "an empty interpreter"
PLAIN = "headgate, and a hit"
FRESH = 20
"""Interpreters started; the one that took the least counts."""

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
    """Milliseconds of CPU of the interpreter that took the least, and the modules it ends with."""
    module = name.partition(" ")[0].rstrip(",")
    if name != EMPTY and importlib.util.find_spec(module) is None:
        raise MissingError(f"{module} is not installed")
    code = CODE[name]
    counted = [sys.executable, "-c", f"{code}\nimport sys; print(len(sys.modules))"]
    env = {word: value for word, value in os.environ.items() if word != "PYTHONDONTWRITEBYTECODE"}
    first = subprocess.run(counted, env=env, check=False, capture_output=True, text=True)  # compiles what is not yet
    if first.returncode:
        raise WorkloadError(f"{name}: {code!r} fails")
    best = min(_cpu([sys.executable, "-c", code], env) for _ in range(FRESH))
    return {"call": code or "pass", "ms": best * 1e3, "modules": int(first.stdout)}


def _cpu(command: list[str], env: dict[str, str]) -> float:
    """Seconds of CPU of a process, from start to end: other work on the machine does not lengthen them much."""
    _, _, used = os.wait4(os.posix_spawn(command[0], command, env), 0)
    return used.ru_utime + used.ru_stime
