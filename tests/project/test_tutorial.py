"""The tutorial, typed as it stands: each file of it is written, and does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.engineless

PAGE = ROOT / "docs/tutorial.md"
FILE = re.compile(r'^```\w+ title="([^",]+)(, at its end)?"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FIELDS = "from fastapi.testclient import TestClient; import shop; print(*(f'{name}: {value}' for name, value in " + (
    "TestClient(shop.app).get('/search?q=water').headers.items() if 'ratelimit' in name), sep=chr(10))"
)


def stages() -> list[tuple[str, str]]:
    """Each file as a reader has it after each block: a block replaces a file, or is added at its end."""
    found: list[tuple[str, str]] = []
    for name, added, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        found.append((name, dict(found)[name] + text if added else text))
    return found


def run(folder: Path, *words: str) -> str:
    """What a Python program prints, in the folder of the files."""
    ran = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_stage_of_the_app_runs_and_its_tests_pass(tmp_path):
    """The app after each step can be imported, sends the fields that are shown, and passes the tests of the page."""
    shown = []
    for name, text in stages():
        (tmp_path / name).write_text(text, encoding="utf-8")
        if name == "shop.py":
            shown.append(run(tmp_path, "-c", FIELDS).splitlines())
    without, default, limited = shown
    assert without == [""]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(default) == 2 and set(default) <= set(page)
    assert limited[0] == 'ratelimit-policy: "search";q=10;w=60'
    assert "2 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")


def test_the_policy_of_the_tutorial_is_right(tmp_path):
    """The command that checks policies finds no mistake in it."""
    (tmp_path / "policy.yaml").write_text(dict(stages())["policy.yaml"], encoding="utf-8")
    run(tmp_path, "-m", "headgate", "policy", "check", "policy.yaml")
