"""The reference has every public name, with its errors and an example that runs (test_docs runs it)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

import headgate
from tests.support import ROOT

pytestmark = pytest.mark.engineless

PAGES = sorted((ROOT / "docs/reference").glob("*.md"))
ENTRY = re.compile(r"^::: (headgate\S*)$", re.MULTILINE)
GROUP = re.compile(r"^(?:::: headgate.*\n(?:    .*\n)*\n?)+", re.MULTILINE)
"""Names that are explained together: entries with nothing between them."""
PYTHON = re.compile(r"^```(?:python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOR_AUTHORS = ("headgate.engine", "headgate.clock", "headgate.stores", "headgate.testing.edges", "headgate.errors")
"""Modules that pages show to authors of stores and edges, or whose names `headgate` has too."""
SPELLED_ELSEWHERE = {"headgate.policy.Policy", "headgate.client.Budget", "headgate.tasks.dramatiq.Throttle"}
"""Names with an entry under another module."""
WRITTEN_IN = {"headgate.Decision": "headgate.decision.Decision", "headgate.Permit": "headgate.permit.Permit"}
"""Classes that an engine compiles: the reference reads the file in which they are written."""


def entries() -> list[str]:
    """Every name that has an entry."""
    return [name for page in PAGES for name in ENTRY.findall(page.read_text(encoding="utf-8"))]


def imported_by_pages() -> set[str]:
    """Every name that an example of another page imports."""
    found = set()
    for page in {*(ROOT / "docs").rglob("*.md")} - {*PAGES}:
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headgate."):
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if not name.startswith(FOR_AUTHORS)} - {"headgate.tasks.rq"}


def test_every_public_name_has_an_entry():
    """A name that can be imported from the front, or that a page imports, is explained, once."""
    stores = {"SharedStore", "RedisStore", "PostgresStore", "SqliteStore"}
    public = {f"headgate.{name}" for name in {*headgate.__all__, *stores} - {"__version__"}}
    for name in ("testing", "client", "tasks", "web.fastapi", "web.flask", "web.django", "web.aiohttp"):
        module = importlib.import_module(f"headgate.{name}")
        public |= {f"{module.__name__}.{each}" for each in module.__all__}
    listed = entries()
    needed = {WRITTEN_IN.get(name, name) for name in public | imported_by_pages()}
    assert needed - SPELLED_ELSEWHERE - set(listed) == set()
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_entries_tell_their_errors_and_have_an_example(page):
    """Entries that stand together are followed by their errors, and by an example that uses each of them."""
    text = page.read_text(encoding="utf-8")
    groups = list(GROUP.finditer(text))
    assert groups
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        told = text[group.end() : following.start() if following else len(text)]
        assert told.startswith("**Errors.** "), group[0]
        code = "\n".join(PYTHON.findall(told))
        assert [
            name for name in ENTRY.findall(group[0]) if not re.search(rf"\b{name.rpartition('.')[2]}\b", code)
        ] == []


@pytest.mark.parametrize("name", entries())
def test_entries_have_docstrings(name):
    """The reference is made from docstrings, so each name has one of its own."""
    if name.startswith(("headgate.web.grpc", "headgate.client.grpc")):
        pytest.importorskip("grpc")
    if name.startswith(("headgate.web.django", "headgate.web.drf")):
        pytest.skip("Django needs settings: its page runs in a process of its own")
    module, _, attribute = name.rpartition(".")
    assert inspect.getdoc(getattr(importlib.import_module(module), attribute))
