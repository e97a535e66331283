"""Tests see Headgate as its users do: two files read private attributes, and a few are replaced elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.engineless

TESTS = Path(__file__).parents[1]
INSIDE = {TESTS / "support" / "inside.py", TESTS / "support" / "inside_leases.py"}
"""The files in which private attributes are read, each by a function that tells why it has no public name."""
REPLACED = {
    "_ask": "a resolver that never answers",
    "_clock": "a breaker takes its time from the machine, whatever clock its store has",
    "_depart": "a task is held at the moment in which it leaves the queue",
    "_engine": "a process that finds every number taken, as if it had been forked",
    "_limits": "each request's limits are counted as they are made",
    "_lock": "a lock that another thread holds during a fork, or that notes what is done under it",
    "_looked": "a server that must not be asked for its settings",
    "_refunding": "a lock that another thread holds during a fork",
    "_reserve": "the question of a caller that waits: it is counted, and fails on its way",
    "_use": "a store that `headgate.testing` exchanges while another thread decides",
}
"""Private names that tests replace or call, because the fault cannot be caused from outside; and the fault of each."""
COMPARED = {
    "_Opened": "the settings of a Django site, opened without the process-wide ones",
    "_Timely": "the connection whose reads and writes a test observes",
    "_real": "the cost of a request by its response, for every value of a header",
    "_means": "the mean cost of a model's answers, which the costs that are reserved come near",
    "_answers": "the flat answers of a decision, which web edges read: they are compared with its verdicts",
    "_fit_slowly": "the plain way to match a path, with which the fast one is compared",
    "_timer_fired": "the callback by which a test finds the timers of Headgate in an event loop",
    "_turn": "the turn of a task in Celery, without a worker",
}
"""Private names that tests compare with public ones, or call directly."""
SHEDDING = {
    "_amount": "the work that waits for the workers",
    "_next_look": "the instant of the next look at the workers",
    "_waited": "the time that a server has waited for, without a server",
    "_workers": "the workers that are busy, without a server",
}
"""The same, for load shedders."""
ALLOWED = {**REPLACED, **COMPARED, **SHEDDING}
OF_OTHERS = {
    "_available_connections", "_callback", "_exit", "_replace", "_run", "_scheduled", "_set_running_loop", "_sock",
    "_task", "_unquote", "_view_middleware",
}  # fmt: skip
"""Names of the standard library and of frameworks."""


def checked_files() -> Iterator[Path]:
    yield from (path for path in sorted(TESTS.rglob("*.py")) if path not in INSIDE)


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """The private names that a file defines itself."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and getattr(node.value, "id", "") == "self"
        ):
            names.add(node.attr)
    return names


def reads(code: str) -> list[str]:
    """The private names of others that a file reads."""
    tree = ast.parse(code)
    found, own = [], own_names(tree) - ALLOWED.keys()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                found.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headgate"):
            found += [alias.name for alias in node.names if private(alias.name)]
    return [name for name in found if name not in OF_OTHERS]


@cache
def reads_of(path: Path) -> list[str]:
    return reads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("limiter._queue", ["_queue"]),
        ("limiter._queue = 1", ["_queue"]),
        ("from headgate.steps import _tasks", ["_tasks"]),
        ("from tests.support.edges import _scope\nself._x\nsuper()._x\nlimiter.__class__\nos._exit(0)", []),
        ("def _own(): ...\nmodule._own", []),
    ],
)
def test_private_reads_are_found(code, seen):
    """Reads, replacements and imports are found; names of a file's own and of other libraries are not."""
    assert reads(code) == seen


def test_tests_read_no_private_attribute_of_headgate():
    """A test that needs one finds a public name, or adds a function to `tests/support/inside.py` or beside it."""
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in checked_files()
        for name in reads_of(path)
        if name not in ALLOWED
    }
    assert not found


def test_every_private_name_that_is_allowed_is_needed():
    """A list of exceptions that nothing needs any more would let new reads pass."""
    used = {name for path in checked_files() for name in reads_of(path)}
    assert ALLOWED.keys() <= used
