"""What `import headgate` costs, told in modules: a plain limiter loads what a plain limiter needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headgate

UNUSED = {
    "argparse", "ast", "asyncio", "concurrent", "contextvars", "dataclasses", "datetime", "decimal", "difflib", "dis",
    "email", "fcntl", "hashlib", "http", "inspect", "ipaddress", "json", "locale", "logging", "mmap", "pathlib",
    "queue", "random", "select", "selectors", "shutil", "signal", "socket", "ssl", "string", "struct", "subprocess",
    "tempfile", "textwrap", "tokenize", "traceback", "urllib", "uuid", "zoneinfo",
}  # fmt: skip
"""Modules of the standard library that a plain limiter in memory has no use for."""

OF_NAMED_TUPLES = {"ast"} if sys.version_info >= (3, 14) else set()
"""What `typing.NamedTuple` itself loads, for annotations that are strings."""

OURS_UNUSED = {
    "headgate.cli", "headgate.client", "headgate.limiter.async_", "headgate.policy", "headgate.shaper",
    "headgate.stores.leases", "headgate.stores.redis", "headgate.stores.shared", "headgate.stores.sql",
    "headgate.tasks", "headgate.testing", "headgate.waiting.timers", "headgate.web",
}  # fmt: skip


def run(code: str) -> list[str]:
    """What the code prints in a new interpreter that has this package and the standard library, and nothing else."""
    env = {**os.environ, "PYTHONPATH": str(Path(headgate.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize(
    "used",
    [
        "",
        "headgate.Limiter('5/minute').hit('k')",
        "headgate.Limiter('5/minute; 9 in flight', store=headgate.MemoryStore()).permit('k')",
        "headgate.Limiter(headgate.Limit(5, per='minute')).decide(headgate.Call('5/minute', 'k'))",
    ],
    ids=["imported", "hit", "permit", "decide"],
)
def test_a_plain_limiter_loads_only_what_it_uses(used):
    """No event loop, no sockets, no logging, no reflection: not when imported, not when a key is counted in memory."""
    loaded = set(run(f"import sys, headgate\n{used}\nprint(*sys.modules)"))
    assert sorted((UNUSED - OF_NAMED_TUPLES) & loaded) == []
    assert sorted(OURS_UNUSED & loaded) == []


@pytest.mark.parametrize("name", sorted({*vars(headgate)["_LATER"]} - {"PostgresStore", "RedisStore"}))
def test_a_name_that_is_loaded_later_is_there_when_asked_for(name):
    """`from headgate import X` works first thing, and `headgate.X` is the same."""
    assert run(f"from headgate import {name}; import headgate; print(headgate.{name} is {name})") == ["True"]


def test_what_is_loaded_later_is_listed_before():
    """`dir(headgate)` and `from headgate import *` know every public name."""
    assert set(headgate.__all__) <= set(run("import headgate; print(*dir(headgate))"))
    assert set(headgate.__all__) - {"__version__"} <= set(run("from headgate import *; print(*dir())"))


def test_a_name_that_is_not_there_is_an_attribute_error():
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="module 'headgate' has no attribute 'Limitre'"):
        headgate.Limitre  # noqa: B018


def test_a_store_that_needs_a_library_says_so_when_it_is_asked_for():
    """`from headgate import RedisStore` without redis-py names what to install; `import *` does not ask for it."""
    told = "try:\n    from headgate import RedisStore\nexcept Exception as error:\n    print(error)"
    assert "redis" in " ".join(run(f"from headgate import *\n{told}"))


def test_a_budget_loads_no_library_of_a_transport():
    """Each transport is a module of its own, which loads its library."""
    code = "import sys, headgate.client\nprint(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"aiohttp", "grpc", "httpx", "httpx2", "requests", "urllib3"}.isdisjoint(ran.stdout.split())
