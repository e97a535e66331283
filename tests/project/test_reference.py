"""The reference has every public name, with its errors and an example that runs (test_docs runs it)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

from tests.support import ROOT
from tests.support.inside import arguments_of_verbs

pytestmark = pytest.mark.engineless

REFERENCE = ROOT / "docs/reference"
PAGES = sorted({*REFERENCE.glob("*.md")} - {REFERENCE / "command.md"})
ENTRY = re.compile(r"^::: (headgate\S*)$", re.MULTILINE)
GROUP = re.compile(r"^(?:::: headgate.*\n(?:    .*\n)*\n?)+", re.MULTILINE)
"""Names that are explained together: entries with nothing between them."""
CODE = re.compile(r"^```(?:python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHOLE = (
    "headgate", "headgate.client", "headgate.client.grpc", "headgate.lab", "headgate.policy", "headgate.shaper",
    "headgate.shed", "headgate.tasks", "headgate.tasks.dramatiq", "headgate.testing", "headgate.web.aiohttp",
    "headgate.web.fastapi", "headgate.web.flask", "headgate.web.grpc", "headgate.web.starlette",
)  # fmt: skip
"""The modules that users import from: every name in their `__all__` is public."""
ONE_NAME = {
    "headgate.client.aiohttp": "middleware",
    "headgate.client.httpx": "Transport",
    "headgate.client.requests": "Adapter",
    "headgate.observe.asgi": "pages",
    "headgate.observe.otel": "export",
    "headgate.observe.prometheus": "export",
    "headgate.observe.wsgi": "pages",
    "headgate.tasks.celery": "throttled",
    "headgate.tasks.rq": "throttled",
    "headgate.web.asgi": "RateLimitMiddleware",
    "headgate.web.refusal": "Refusal",
    "headgate.web.wsgi": "RateLimitMiddleware",
}
"""Modules from which users import one name; the others are for the packages above."""
NEED_SETTINGS = ("headgate.web.django", "headgate.web.django.testing", "headgate.web.drf")
"""Modules of Django, whose page runs in a process of its own."""
FOR_AUTHORS = ("headgate.engine", "headgate.clock", "headgate.stores", "headgate.testing.edges", "headgate.errors")
"""Modules that pages show to authors of stores and edges, or whose names `headgate` has too."""
INSIDE = {
    "headgate.__version__": "a string",
    "headgate.lab.Trailing": "the window by which the playground measures",
    "headgate.policy.Proxies": "for edges",
    "headgate.policy.RequestView": "for edges",
    "headgate.shed.deadline_ns": "a variable that edges set",
    "headgate.shed.request_class": "a variable that edges set",
    "headgate.web.starlette.Limit": "made by `limited`",
    "headgate.web.starlette.send_refusal": "for the other edges of ASGI",
}
"""Names that a public module shows to packages above it, with the reason."""
WRITTEN_IN = {"headgate.Decision": "headgate.decision.Decision", "headgate.Permit": "headgate.permit.Permit"}
"""Classes that an engine compiles: the reference reads the file in which they are written."""


def entries() -> list[str]:
    """Every name that has an entry."""
    return [name for page in PAGES for name in ENTRY.findall(page.read_text(encoding="utf-8"))]


def found(name: str) -> object:
    """The object that a name means."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_names() -> list[str]:
    """Every name of every public module, and the stores that are loaded when they are asked for."""
    stores = ["SharedStore", "RedisStore", "PostgresStore", "SqliteStore"]
    names = [f"headgate.{name}" for name in stores] + [f"{module}.{name}" for module, name in ONE_NAME.items()]
    for module in map(importlib.import_module, WHOLE):
        names += [f"{module.__name__}.{name}" for name in module.__all__]
    return names


def imported_by_pages() -> set[str]:
    """Every name that an example of another page imports."""
    names = set()
    for page in {*(ROOT / "docs").rglob("*.md")} - {*PAGES}:
        for block in PYTHON.findall(page.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headgate."):
                    names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if not name.startswith(FOR_AUTHORS)}


def test_every_public_name_has_an_entry():
    """A name of a public module is explained, once: under this name, or under another one of the same object."""
    listed = entries()
    assert len(listed) == len(set(listed))
    explained = {id(found(name)) for name in listed if not name.startswith(NEED_SETTINGS)}
    names = [name for name in public_names() if name not in INSIDE and WRITTEN_IN.get(name) not in listed]
    assert [name for name in names if name not in listed and id(found(name)) not in explained] == []


def test_names_that_pages_import_are_public():
    """An example imports public names only: those of the reference, under any of their modules."""
    known = {*entries(), *public_names(), *ONE_NAME}
    assert imported_by_pages() - known == set()


def test_every_name_of_django_has_an_entry():
    """Django's modules cannot be imported without settings: their list of names is read."""
    django = ast.parse((ROOT / "src/headgate/web/django/__init__.py").read_text(encoding="utf-8"))
    (shown,) = (ast.literal_eval(node.value) for node in django.body if _is_all(node))
    assert {f"headgate.web.django.{name}" for name in shown} <= set(entries())


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def test_names_that_are_left_out_exist():
    """A name that is left out of the reference with a reason is still one of its module."""
    assert {name for name in INSIDE if name not in public_names()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_entries_tell_their_errors_and_have_an_example(page):
    """Entries that stand together are followed by their errors, and by an example that uses each of them."""
    text = page.read_text(encoding="utf-8")
    groups = list(GROUP.finditer(text))
    assert groups
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        told = text[group.end() : following.start() if following else len(text)]
        assert told.startswith("**Errors.** "), group[0]
        code = "\n".join(CODE.findall(told))
        assert [
            name for name in ENTRY.findall(group[0]) if not re.search(rf"\b{name.rpartition('.')[2]}\b", code)
        ] == []
        assert ast.parse(code)


@pytest.mark.parametrize("name", [name for name in entries() if not name.startswith(NEED_SETTINGS)])
def test_entries_have_docstrings(name):
    """The reference is made from docstrings, so each name has one of its own."""
    if name == "headgate.lab.TRAFFIC":
        pytest.skip("a table: the reference shows the comment below it")
    if name.startswith(("headgate.web.grpc", "headgate.client.grpc")):
        pytest.importorskip("grpc")
    assert inspect.getdoc(found(name))


def test_the_command_has_every_verb_with_its_arguments():
    """The page of the command has a line for each verb, and in it each argument; no other verb is named."""
    page = (REFERENCE / "command.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`([\w ]+)`\]\(\S+\) \| [^|]+ \| ?(.*?) ?\|$", page, re.MULTILINE)
    assert {verb: re.findall(r"`(\S+)`", arguments) for verb, arguments in rows} == arguments_of_verbs()
