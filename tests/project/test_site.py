"""The site that `make docs` builds, as a reader meets it. `make test-docs` runs these: they need the group `docs`."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from tests.support import ROOT
from tests.support.browser import running, visit

pytestmark = [pytest.mark.site, pytest.mark.engineless]

WIDTHS = (1280, 390)


class Served(http.server.SimpleHTTPRequestHandler):
    """Files, without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Seen(HTMLParser):
    """What a page refers to, and what of it others can refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        """Files that a browser fetches with the page."""
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if given.get("src") or (tag == "link" and given.get("rel") != "canonical" and given.get("href")):
            self.loads.append(str(given.get("src") or given.get("href")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of its sources, so that an earlier build is not mistaken for this one."""
    pytest.importorskip("zensical", reason="the group `docs` is not installed")
    copy = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", copy)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(copy / "mkdocs.yml")]
    built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copy)
    assert built.returncode == 0, built.stdout + built.stderr
    return copy / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a server on this machine serves the site."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Served, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def pages_of(site: Path) -> dict[str, Seen]:
    """Every page by its path in the site; the page for wrong addresses has links from the root of a server."""
    found = {page.relative_to(site).as_posix(): page for page in site.rglob("*.html") if page.name != "404.html"}
    return {name: Seen(page.read_text(encoding="utf-8")) for name, page in found.items()}


def test_links_anchors_and_images_of_the_site_lead_somewhere(site):
    """Every reference of every page, as it was built, names a file of the site and a place in it."""
    pages = pages_of(site)
    assert len(pages) > 50
    wrong = []
    for name, seen in pages.items():
        for target in (*seen.links, *seen.loads):
            place = urlsplit(urljoin(f"http://site/{name}", target))
            if place.netloc != "site" or place.scheme != "http":
                continue
            path = unquote(place.path).lstrip("/") or "index.html"
            known = (site / path).is_file()
            if not known or (place.fragment and path in pages and unquote(place.fragment) not in pages[path].ids):
                wrong.append((name, target))
    assert wrong == []


def test_nothing_is_fetched_from_another_host(site):
    """No page, style sheet or script of the site names a file elsewhere that a browser would fetch."""
    loads = {load for seen in pages_of(site).values() for load in seen.loads}
    assert [load for load in loads if urlsplit(load).netloc] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", sheet.read_text(encoding="utf-8")) == []


def test_every_page_opens_in_a_browser(site, address):
    """At the width of a desk and of a phone: no error, no word on the console, no request elsewhere, no overflow."""
    broken = "[...document.images].filter(each => each.complete && !each.naturalWidth).length"
    with running() as browser:
        for width in WIDTHS:
            with visit(browser, address, width=width) as seen:
                for name in pages_of(site):
                    seen.page.goto(address + name)
                    assert seen.messages == [], name
                    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                    assert seen.page.evaluate(broken) == 0, name
                assert [each for each in seen.requests if not each.startswith((address, "data:", "blob:"))] == []


def test_the_search_finds_a_page(address):
    """A word that is typed leads to the page about it, from an index that lies in the site."""
    with running() as browser, visit(browser, address) as seen:
        seen.page.keyboard.press("Control+k")
        seen.page.keyboard.type("leaky bucket")
        seen.page.get_by_role("link", name="Leaky bucket").first.wait_for(timeout=10_000)
        assert seen.messages == []


def test_the_site_has_a_dark_face(address):
    """A reader whose system is dark gets dark pages."""
    back = "getComputedStyle(document.body).backgroundColor"
    with running() as browser, visit(browser, address) as light, visit(browser, address, dark=True) as dark:
        assert light.page.evaluate(back) != dark.page.evaluate(back)
