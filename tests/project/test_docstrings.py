"""Docstrings of tests are read alone, as the specification: each is a plain sentence with a noun as its subject."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project.test_architecture import PACKAGE, TESTS, parsed

pytestmark = pytest.mark.engineless

RIDDLE = re.compile(r"^(who|what|those who)\b|\b(whoever|whom|so many|as new)\b", re.IGNORECASE)
FRAGMENT = re.compile(r"^(And|Also|Nor|Or|Then)\b")


class Stated(NamedTuple):
    """A test and its docstring."""

    name: str
    line: int
    docstring: str


@cache
def stated_in(path: Path) -> list[Stated]:
    """The tests of a file, and of the classes in it."""
    tree = parsed(path)
    return [
        Stated(node.name, node.lineno, ast.get_docstring(node) or "")
        for holder in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef)))
        for node in holder.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


TESTED = [path for folder in (TESTS, PACKAGE / "testing") for path in sorted(folder.rglob("*.py"))]


def test_every_test_states_a_behaviour():
    """The docstring of a test is a sentence that says more than its name; suites for others are held to it too."""
    tests = [(f"{path.name}:{test.line}: {test.name}", test) for path in TESTED for test in stated_in(path)]
    stated = {name: test.docstring for name, test in tests}
    repeated = [
        name
        for name, test in tests
        if re.findall(r"[a-z0-9]+", stated[name].lower()) == test.name.lower().split("_")[1:]
    ]
    assert [name for name in stated if not stated[name].endswith((".", "?", "!"))] == []
    assert repeated == []


@pytest.mark.parametrize(
    "stated",
    ["What is refused stays.", "Who comes late waits.", "So many are left.", "A key, whoever has it.", "It is as new."],
)
def test_riddles_are_found(stated):
    """A sentence whose subject has to be guessed is found by its words."""
    assert RIDDLE.search(stated)


def test_every_docstring_of_a_test_has_a_noun_as_its_subject():
    """A docstring does not begin with a pronoun for an unknown thing, nor as the rest of the name of its test."""
    riddles = {
        f"{path.name}: {test.name}"
        for path in TESTED
        for test in stated_in(path)
        if RIDDLE.search(test.docstring) or FRAGMENT.match(test.docstring)
    }
    assert riddles == set()
