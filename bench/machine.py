"""On what the figures were taken."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.rivals import PINNED


def describe() -> dict[str, str]:
    import headgate
    from headgate.engine import NATIVE

    return {
        "headgate": f"{headgate.__version__}, {'native' if NATIVE else 'pure'} engine",
        "python": f"{platform.python_implementation()} {platform.python_version()}{_free_threading()}",
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "load": f"{os.getloadavg()[0]:.2f} before the run" if hasattr(os, "getloadavg") else "unknown",
        "rivals": ", ".join(f"{name} {_version(name)}" for name in PINNED),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _free_threading() -> str:
    return "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without the GIL"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown CPU"
