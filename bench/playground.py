"""The playground in a real browser: frames a second, CPU of its server, the time to its first lane and to a dot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.contestant import MissingError
from bench.measure import Figures

CROWDED = "1,000 requests a second, six algorithms"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
SECONDS = 8
CLICKS = 20
FRAMES = """seconds => new Promise(done => { const each = []; let count = 0, start = performance.now(), last = start;
  const tick = at => { count++; if (at - last >= 1000) { each.push(count); count = 0; last = at; }
    if (at - start < seconds * 1000) requestAnimationFrame(tick); else done(each); };
  requestAnimationFrame(tick); })"""
DOT = """() => new Promise(done => {
  const seen = () => { const [yes, no] = document.querySelectorAll('.lane')[5].querySelectorAll('dd');
    return [yes, no].reduce((sum, each) => sum + +each.textContent.replaceAll(',', ''), 0); };
  const before = seen(), start = performance.now();
  document.querySelector('[data-do=one]').click();
  const taken = () => performance.now() - start;
  const look = () => requestAnimationFrame(seen() > before || taken() > 5000 ? () => done(taken()) : look);
  look(); })"""


def measure_playground(name: str) -> Figures:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise MissingError("no browser is installed")
    from playwright.sync_api import sync_playwright

    begin = perf_counter()
    command = [sys.executable, "-m", "headgate", "playground", "--no-open", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http\S+/", server.stdout.readline())
        assert found is not None
        started = perf_counter() - begin
        with sync_playwright() as driver:
            page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
            return {"call": name, **measured(page, found[0], server.pid, started)}
    finally:
        server.terminate()
        server.wait()


def measured(page: Any, address: str, server: int, started: float) -> Figures:
    begin = perf_counter()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector(".lane")
    first = started + perf_counter() - begin
    page.fill("#limit", "100/1s")
    page.evaluate("() => { const rate = document.getElementById('rate'); rate.value = 100;"
                  "rate.dispatchEvent(new Event('input')); }")  # fmt: skip
    page.wait_for_timeout(1500)
    cpu, begin = cpu_of(server), perf_counter()
    frames = page.evaluate(FRAMES, SECONDS)
    share = (cpu_of(server) - cpu) / (perf_counter() - begin)
    page.click("text=only my clicks")
    page.wait_for_timeout(500)
    dots = []
    for _ in range(CLICKS):
        dots.append(page.evaluate(DOT))
        page.wait_for_timeout(37)
    return {"frames": median(frames), "worst": min(frames), "share": share, "first": first, "dot": max(dots)}


def cpu_of(process: int) -> float:
    """Seconds of CPU of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
