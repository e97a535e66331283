"""A real browser for tests of pages: found on the machine, never downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
VARIABLE = "HEADGATE_BROWSER"


def find() -> str | None:
    """Where a browser is: the one that HEADGATE_BROWSER names, or else the first on PATH."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def running() -> Iterator[Browser]:
    """A browser for many pages; the test is skipped where there is none."""
    path = find()
    if path is None:
        pytest.skip(f"no browser here: install one of {', '.join(NAMES)}, or name it in {VARIABLE}")
    from playwright.sync_api import sync_playwright  # loaded only where a browser is

    with sync_playwright() as driver:
        # Root, as in a container, may not start the sandbox. The pages are our own.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """An open page, and all that it said or asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    """Errors, and whatever else came to the console."""
    requests: list[str] = field(default_factory=list)
    """What was asked for beside the page itself."""

    def dismiss(self, dialog: Dialog) -> None:
        """Note a dialog, and close it: the page would stand still."""
        self.messages.append(dialog.message)
        dialog.dismiss()


@contextmanager
def visit(
    browser: Browser,
    address: Path | str,
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    scripts: bool = True,
    still: bool = False,
) -> Iterator[Visit]:
    """Open a file or an address in a window of its own; `still` asks the page for less motion."""
    url = address.as_uri() if isinstance(address, Path) else address
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        reduced_motion="reduce" if still else "no-preference",
    )

    try:
        seen = Visit(context.new_page())
        seen.page.on("console", lambda message: seen.messages.append(message.text))
        seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.page.on("dialog", seen.dismiss)
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(url)
        seen.requests.remove(url)
        yield seen
    finally:
        context.close()


def wait_for(page: Page, expression: str, given: object = None) -> None:
    """Wait until an expression holds; it may read `given`.

    `wait_for_function` evaluates text in the page if the expression does not hold at once, which our pages forbid.
    """
    for _ in range(750):
        if page.evaluate(f"given => {expression}", given):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never: {expression}")
