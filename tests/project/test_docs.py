"""Every example in the documentation runs, and what it says comes out comes out.

A page is one program: its python blocks run in order in one namespace. A page with `<!-- continues PAGE -->` runs after
the blocks of that page. After an expression, a comment `# -> repr` states what it gives; a comment of that form beside
anything else, or on a line that is never reached, is a failure.
"""

from __future__ import annotations

import ast
import doctest
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import AsyncLimiter, Decision, Limit, Limiter
from headgate.engine import NATIVE
from headgate.testing import ManualClock
from tests.support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = 250
"""Lines of a page. A longer one is about two subjects."""
NATIVE_ONLY = {"docs/recipes/docker.md", "docs/shared.md", "docs/shared/operating.md"}
OWN_PROCESS = {
    "docs/django.md",
    "docs/django/rest-framework.md",
    "docs/django/testing.md",
    "docs/reference/servers.md",
}
"""Django has one settings for a process."""
NEEDS_GRPC = {"docs/grpc.md", "docs/reference/client.md", "docs/reference/servers.md"}
NEEDS_STRAWBERRY = {"docs/recipes/graphql.md"}
NEEDS_SERVER = {"docs/in-flight/failures.md", "docs/leases.md", "docs/recipes/serverless.md", "docs/redis.md"}
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CONTINUES = re.compile(r"^<!-- continues (\S+) -->$", re.MULTILINE)
ARROW = re.compile(r".*#\s*->\s*(.*)")


def name_of(page: Path) -> str:
    """A page as its path from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[str]:
    """The python blocks of a page, each pushed down to its own lines so that a failure points at the page."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


def arrows_in(source: str) -> dict[int, str]:
    """The `# -> repr` comments by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = ((token.start[0], ARROW.fullmatch(token.string)) for token in tokens if token.type == tokenize.COMMENT)
    return {line: found[1].strip() for line, found in comments if found}


class Claims(ast.NodeTransformer):
    """Turns every expression that has an arrow beside it into a call that notes what came out."""

    def __init__(self, arrows: dict[int, str]) -> None:
        self.unclaimed = dict(arrows)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        """An expression that stands as a statement."""
        expected = self.unclaimed.pop(node.end_lineno or node.lineno, None)
        if expected is not None:
            told: list[ast.expr] = [ast.Constant(node.end_lineno), ast.Constant(expected), node.value]
            node.value = ast.Call(ast.Name("__came_out", ast.Load()), told, [])
        return node


def run_page(page: Path) -> dict[str, Any]:
    """Run a page's blocks, after those of the page that it continues, and compare every arrow."""
    reached = set()

    def came_out(line: int, expected: str, value: object) -> None:
        reached.add(line)
        assert repr(value) == expected, f"{name_of(page)}, line {line}"

    before = CONTINUES.search(page.read_text(encoding="utf-8"))
    namespace = run_page((page.parent / before[1]).resolve()) if before else {}
    namespace |= {"__name__": page.stem, "__came_out": came_out}
    for source in blocks_of(page):
        arrows = arrows_in(source)
        claims = Claims(arrows)
        tree = ast.fix_missing_locations(claims.visit(ast.parse(source)))
        assert not claims.unclaimed, f"{name_of(page)}: an arrow beside no expression: {claims.unclaimed}"
        exec(compile(tree, str(page), "exec"), namespace)
        assert arrows.keys() <= reached, f"{name_of(page)}: never reached: {arrows.keys() - reached}"
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_are_true(page, monkeypatch):
    """Every python block runs, and every expression gives what the arrow beside it says."""
    name = name_of(page)
    if name in NATIVE_ONLY and not NATIVE:
        pytest.skip("about what only the native engine has")
    if name in NEEDS_GRPC:
        pytest.importorskip("grpc")
    if name in NEEDS_STRAWBERRY:
        pytest.importorskip("strawberry")
    if name in OWN_PROCESS:
        code = "import sys, pathlib, tests.project.test_docs as docs; docs.run_page(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, str(page)], cwd=ROOT, check=True)
    elif name in NEEDS_SERVER:
        from tests.support.servers import Server

        with Server(tcp=True) as server:
            monkeypatch.setenv("REDIS_URL", f"{server.url}?deadline=2")
            run_page(page)
    else:
        run_page(page)


@pytest.mark.parametrize(
    "block",
    ["1 + 1  # -> 3", "if False:\n    1 + 1  # -> 2", "two = 1 + 1  # -> 2", "1 / 0"],
    ids=["wrong", "never reached", "beside no expression", "broken"],
)
def test_untrue_examples_are_found(tmp_path, monkeypatch, block):
    """The check itself can fail: on a wrong value, a line never reached, an arrow beside a statement, an error."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"Text.\n\n```python\n{block}\n```\n", encoding="utf-8")
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run_page(page)


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="links lead through the source tree")
@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_links_lead_somewhere(page):
    """Every relative link names a file that exists and, after a #, one of its headings."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors_of(linked), target


def anchors_of(page: Path) -> set[str]:
    """The names that links use for a page's headings: lower case, no punctuation, dashes for spaces."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_index_lists_every_page():
    """No page is left out of the list of pages."""
    docs = ROOT / "docs"
    listed = set(LINK.findall((docs / "index.md").read_text(encoding="utf-8")))
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"} <= listed


@pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="the site is built from the source tree")
def test_the_site_leads_through_every_page():
    """Each page has one place in the flow of the site, from which the next one follows."""
    docs = ROOT / "docs"
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))


def test_pages_are_short():
    """A page has one subject: a reader sees its end, and a link leads near to its answer."""
    assert [name_of(page) for page in PAGES if page.read_text(encoding="utf-8").count("\n") > LONGEST] == []


@pytest.mark.parametrize("documented", [Limit, Decision, ManualClock, Limiter], ids=lambda each: each.__name__)
def test_docstring_examples_are_true(documented):
    """The `>>>` examples in the docstrings of public classes give what they show."""
    names = {**vars(headgate), "ManualClock": ManualClock}
    test = doctest.DocTestParser().get_doctest(documented.__doc__, names, documented.__name__, None, None)
    assert test.examples
    report: list[str] = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_the_two_limiters_share_their_words():
    """The pages on `Limiter` hold for `AsyncLimiter`: the same public names, but for Python's `aclose`."""
    sync, awaited = ({name for name in dir(kind) if name[0] != "_"} for kind in (Limiter, AsyncLimiter))
    assert sync - {"close"} == awaited - {"aclose"}
