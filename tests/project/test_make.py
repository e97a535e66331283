"""The targets of the Makefile that compiled: what fails is said, and nothing that failed is called a success."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(
        not (ROOT / "Makefile").exists() or shutil.which("make") is None or shutil.which("bash") is None,
        reason="about the source tree, and make",
    ),
]


def program(path: Path, text: str) -> Path:
    """An executable that does this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(*command: str, first: Path) -> subprocess.CompletedProcess[str]:
    """Run with the programs of a folder found before all others."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "HEADGATE_"))}
    env["PATH"] = f"{first}:{env['PATH']}"
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("failing", ["native", "pure"])
def test_both_halves_of_the_suite_run_before_it_fails(tmp_path, failing):
    """A failure on one engine does not hide what the other one would have said."""
    fails = '"$HEADGATE_PURE" = 1' if failing == "pure" else '"$HEADGATE_PURE" != 1'
    program(tmp_path / "bin" / "python", f'echo "ran ${{HEADGATE_PURE:-native}}"; test ! {fails}')
    for done in (".pip", ".core", ".dev"):
        (tmp_path / done).touch()
    ran = run("make", "test", f"VENV={tmp_path}", first=tmp_path)
    assert [line for line in ran.stdout.splitlines() if line.startswith("ran")] == ["ran native", "ran 1"]
    assert ran.returncode != 0


def test_only_pythons_that_run_are_listed(tmp_path):
    """One that is not installed is left out and named; one that does not start is named, and is a failure."""
    program(tmp_path / "python3.81", "exit 0")
    program(tmp_path / "python3.82", "echo 'no such version' >&2; exit 127")
    asked = ("python3.80", "python3.81", "python3.82")
    ran = run(".ci/pythons", *asked, first=tmp_path)
    assert ran.stdout == "python3.81\n"
    assert ran.stderr == (
        "python3.80: not installed, left out\npython3.82: installed, but it does not start: no such version\n"
    )
    assert ran.returncode == 1
    assert run(".ci/pythons", *asked[:2], first=tmp_path).returncode == 0


@pytest.mark.parametrize("asked", ["python3.82", "python3.80"], ids=["does not start", "not installed"])
def test_the_matrix_fails_where_no_python_ran(tmp_path, asked):
    """`make matrix` is no success when a Python that is installed does not start, or when there is none at all."""
    program(tmp_path / "python3.82", "exit 127")
    ran = run("make", "--assume-old=oldest", "matrix", f"MATRIX={asked}", first=tmp_path)
    assert ran.returncode != 0
    assert f"{asked}: " in ran.stderr
