"""A system without the parts that only Linux and macOS have: everything imports, and what is missing tells so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate

pytestmark = pytest.mark.engineless

PACKAGE = Path(headgate.__file__).parent
MODULES = ("fcntl", "termios", "tty", "pwd", "grp", "resource")
ATTRIBUTES = {
    "mmap": ("MAP_SHARED", "PROT_READ", "PROT_WRITE"),
    "os": ("fork", "geteuid", "getuid", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "register_at_fork"),
    "signal": ("SIGHUP", "SIGWINCH", "SIGKILL", "SIGUSR1"),
    "socket": ("AF_UNIX",),
}
"""Windows has these modules, but not these names of theirs."""
GUARDED = {"forks.py": "it asks first whether the system forks"}
LATE = {"top/terminal.py": "the screen of `headgate top` asks for it after `needs`"}
WITHOUT = f"""
import builtins, importlib, sys

imported, found = builtins.__import__, importlib.import_module

def fail(name):
    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def import_here(name, globals=None, locals=None, fromlist=(), level=0):
    if name in {MODULES!r} and globals is not None and globals.get("__name__", "").startswith("headgate"):
        fail(name)
    return imported(name, globals, locals, fromlist, level)

builtins.__import__ = import_here
importlib.import_module = lambda name, package=None: fail(name) if name in {MODULES!r} else found(name, package)
"""
"""Only Headgate's own imports fail: the libraries that it uses are those of this system."""


def run(code: str) -> str:
    """What a process of such a system prints; it has no compiler, and so the pure engine."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HEADGATE_PURE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that run when it is imported: no body of a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        yield from at_import(node)


def needed(node: ast.AST) -> str | None:
    """The name of a part that this needs, if Windows does not have it."""
    if isinstance(node, ast.Import) and node.names[0].name in MODULES:
        return node.names[0].name
    if isinstance(node, ast.ImportFrom) and node.module in MODULES:
        return node.module
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" if node.attr in ATTRIBUTES.get(node.value.id, ()) else None
    return None


def test_no_module_needs_such_a_part_when_it_is_imported():
    """Parts are looked for where they are used, so that an app that does not use them runs everywhere."""
    found = {
        str(file.relative_to(PACKAGE)): names
        for file in PACKAGE.rglob("*.py")
        if (names := [name for node in at_import(ast.parse(file.read_text("utf-8"))) if (name := needed(node))])
    }
    assert found.keys() == GUARDED.keys() | LATE.keys(), found


def test_a_limiter_decides():
    """Memory is a store everywhere."""
    code = (
        "from headgate import Limiter\nlimiter = Limiter('2/minute')\nprint([bool(limiter.hit('a')) for _ in range(3)])"
    )
    assert run(code) == "[True, True, False]"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "Limiter('2/minute', store='shared:///tmp/nowhere').hit('a')",
            "a shared store needs Linux or macOS, and this system is linux: use memory:// for one process, "
            "redis:// for several",
        ),
        (
            "from headgate.observe.prometheus import export; export(Limiter('2/minute'), publish='nowhere')",
            "publish needs Linux or macOS, and this system is linux: leave it out, and export one process",
        ),
    ],
    ids=["shared", "publish"],
)
def test_a_missing_part_is_told(code: str, told: str):
    """At once, with what to use in its place."""
    program = (
        f"from headgate import Limiter, StoreError\ntry:\n    {code}\nexcept StoreError as error:\n    print(error)"
    )
    assert run(program) == told.replace("linux", sys.platform)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("serve --policy policy.yaml", "headgate serve needs Linux or macOS"),
        ("shared ls nowhere", "a shared store needs Linux or macOS"),
    ],
)
def test_a_verb_that_cannot_run_here_tells_so(words: str, told: str, tmp_path):
    """One line on standard error, exit code 1."""
    (tmp_path / "policy.yaml").write_text("rules: [{name: all, key: ip, limits: 5/minute}]")
    program = f"""
import contextlib, io, os
from headgate.cli import main
os.chdir({str(tmp_path)!r})
with contextlib.redirect_stderr(io.StringIO()) as told:
    code = main({words.split()!r})
print(code, told.getvalue())
"""
    code, _, line = run(program).partition(" ")
    assert code == "1"
    assert told in line
    assert "\n" not in line
