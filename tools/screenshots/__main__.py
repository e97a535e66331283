"""Take the screenshots again: `python -m tools.screenshots`. A browser is needed, as for the tests of pages.

Nothing compares them with the ones before: fonts and browsers differ from machine to machine. Look at them.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browser import NAMES, find, running, visit

from headgate.lab import About, html, simulate, versions
from headgate.playground.server import Playground
from tools.screenshots.top import screen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE = 30_000
"""Milliseconds that a page may take to show what is wanted."""


def main() -> int:
    """Write the three pictures."""
    if find() is None:
        print(f"no browser here: install one of {', '.join(NAMES)}", file=sys.stderr)
        return 1
    with running() as browser, tempfile.TemporaryDirectory() as folder:
        playground(browser)
        report(browser, Path(folder, "report.html"))
        top(browser, Path(folder, "top.svg"))
    return 0


def playground(browser: Browser) -> None:
    """The playground after an attack on the seam, with random requests before and after it."""
    served = Playground(0)
    thread = threading.Thread(target=served.serve)
    thread.start()
    try:
        with visit(browser, served.address, height=800) as seen:
            seen.page.wait_for_selector(".lane")
            seen.page.click("text=GET /api/hello")
            seen.page.wait_for_timeout(8_000)  # random requests, before the attack and after it
            seen.page.keyboard.press("s")
            seen.page.get_by_text("let 20 pass").first.wait_for(timeout=PATIENCE)
            seen.page.wait_for_timeout(4_000)
            _taken(seen.page, "playground.png")
    finally:
        served.close()
        thread.join()


def report(browser: Browser, file: Path) -> None:
    """The first screen of a report: five algorithms under the same attack."""
    command = "headgate simulate --traffic seam --limit 60/minute --clients 20 --seed 7"
    result = simulate("seam", "60/minute", clients=20, seed=7)
    file.write_text(html(result, About(command, 7, "", versions())), encoding="utf-8")
    with visit(browser, file, width=1100, height=1000) as seen:
        seen.page.wait_for_selector("canvas", timeout=PATIENCE)
        _taken(seen.page, "report.png")


def top(browser: Browser, file: Path) -> None:
    """`headgate top` after a minute of requests."""
    file.write_text(screen(), encoding="utf-8")
    with visit(browser, file, width=1000, height=640) as seen:
        _taken(seen.page, "top.png")


def _taken(page: Page, name: str) -> None:
    page.screenshot(path=DOCS / name)
    print(f"docs/{name}")


if __name__ == "__main__":
    sys.exit(main())
