"""The wheel, as somebody meets it who has nothing but Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="a wheel is built from the source tree"),
]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*command: object, cwd: Path, **env: str) -> str:
    """What a command prints; it fails if the command does."""
    given = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **env}
    ran = subprocess.run(list(map(str, command)), cwd=cwd, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment in which the wheel was installed, without an index."""
    home = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", home / "tree/src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, home / "tree")
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", home / "dist", home / "tree")
    run(*build, cwd=home, HEADGATE_PURE="1")  # without a compiler
    run(sys.executable, "-m", "venv", "--without-pip", home / "env", cwd=home)
    python = home / "env/bin/python"
    (wheel,) = (home / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", wheel, cwd=home)
    return python


def test_the_first_lines_of_the_readme_run_in_an_empty_environment(fresh, tmp_path):
    """They need no other package, and print what the comment beside them says."""
    first = PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert len(first.splitlines()) <= 5
    (tmp_path / "first.py").write_text(first, encoding="utf-8")
    assert run(fresh, "first.py", cwd=tmp_path).strip() == first.rstrip().rpartition("  # ")[2]


def test_the_wheel_pulls_nothing_and_has_the_command(fresh, tmp_path):
    """Only the standard library and Headgate can be imported there, and the command runs."""
    listed = "from importlib.metadata import distributions; print(sorted({each.name for each in distributions()}))"
    assert run(fresh, "-c", listed, cwd=tmp_path) == "['headgate']\n"
    assert "sliding-log" in run(fresh.with_name("headgate"), "demo", cwd=tmp_path)
