"""Rooms and stairs: a room imports only rooms below it, and nothing looks at the tools for testing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate

PACKAGE = Path(headgate.__file__).parent
TESTS = Path(__file__).parents[1]

FLOORS = [
    {"logs", "forks", "caches", "layout", "steps"},
    {"wording"},
    {"errors", "clock", "_version"},
    {"algorithms"},
    {"limit"},
    {"call", "decision", "permit"},
    {"engine"},
    {"stores"},
    {"waiting"},
    {"policy"},
    {"limiter", "shaper"},
    {"web", "tasks"},
    {"cli"},
    {"__main__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ONE_FLOOR = {("decision", "call"), ("permit", "decision"), ("errors", "clock"), ("shaper", "limiter")}
"""Neighbours that may meet: a decision answers calls, a permit holds a decision, an error says how long, a shaper is
bound like a limiter."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The rooms a file imports when it runs (what only the type checker reads does not count)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If)
        and "TYPE_CHECKING" in ast.unparse(block.test)
        and "NATIVE" not in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "headgate"
                else [node.module or ""]
            )
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("headgate."))


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_below_it(path):
    """Every import goes down the stairs, or stays in its room."""
    room = room_of(path)
    if room == "testing":
        return
    for other in imports(path):
        assert other != "testing", f"{path} looks at the tools for testing"
        downstairs = FLOOR_OF[other] < FLOOR_OF[room] or (room, other) in ONE_FLOOR
        assert other == room or downstairs, f"{path.name} ({room}) climbs to {other}"


def test_every_room_has_a_floor():
    """A new room is given its place in the plan before anything is put into it."""
    assert {room_of(path) for path in SOURCES} - {"testing"} <= FLOOR_OF.keys()


def test_files_stay_small():
    """A file has one purpose: one that grows beyond 300 lines has become two."""
    long = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.p[yx]*")
        if path.suffix in {".py", ".pyx", ".pxi"}
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert not long


def test_functions_stay_small():
    """No function has more than 40 lines; only public constructors have more than 7 parameters."""
    large = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([each for each in parameters if each.arg not in ("self", "cls")])
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 40 or (count > 7 and node.name != "__init__"):
                    large.append(f"{path.relative_to(PACKAGE)}: {node.name}, {lines} lines, {count} parameters")
    assert not large


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests of a file, and of the classes in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for holder in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in holder.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node


TESTED = [path for folder in (TESTS, PACKAGE / "testing") for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("path", TESTED, ids=lambda path: path.stem)
def test_every_test_states_a_behaviour(path):
    """The docstring of a test is a sentence that says more than its name; suites for others are held to it too."""
    for test in functions_of(path):
        stated = ast.get_docstring(test) or ""
        assert stated.endswith((".", "?", "!")), f"{path.name}: {test.name} does not state a behaviour"
        words = re.findall(r"[a-z0-9]+", stated.lower())
        assert words != test.name.lower().split("_")[1:], f"{path.name}: {test.name} only repeats its name"


def test_the_rosters_agree():
    """Every kind of step named in Python has its kernel in C; the plan of the answer's words is the same in both."""
    roster = PACKAGE / "algorithms" / "roster.pxi"
    if not roster.exists():
        pytest.skip("installed from a wheel, which carries the kernels compiled")
    from headgate.algorithms import ALGORITHMS

    text = roster.read_text(encoding="utf-8")
    for kind in {algorithm.step.KIND for algorithm in ALGORITHMS.values()}:
        assert f'kind == "{kind}"' in text
