"""What a wheel is called: by what was built, not by what was meant to be. Each takes the time of a build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="wheels are built from the source tree"),
]


def build(tmp_path: Path, **env: str) -> Path:
    """The wheel that this tree becomes under these variables."""
    tree = tmp_path / "tree"
    tree.mkdir(exist_ok=True)
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, tree / name, ignore=left_out, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, tree / name)
    leave_old_engine_in(tree)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    ran = subprocess.run(command, cwd=tree, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    [wheel] = (tmp_path / "dist").iterdir()
    return wheel


def leave_old_engine_in(tree: Path) -> None:
    """An earlier build of this tree, by a compiler that was there on that day."""
    place = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "headgate" / "engine"
    place.mkdir(parents=True)
    engine = place / f"native{sysconfig.get_config_var('EXT_SUFFIX')}"
    engine.write_bytes(b"from another day")
    os.utime(engine, (0, 0))


@pytest.mark.parametrize(
    "env", [{"HEADGATE_PURE": "1"}, {"HEADGATE_PURE": "0", "CC": "/nonexistent"}], ids=["asked for", "no compiler"]
)
def test_a_wheel_without_the_native_engine_is_for_any_platform(tmp_path, env):
    """Its name and its metadata say `py3-none-any`, whether the engine was not wanted or could not be built.

    An engine that an earlier build left behind does not travel with it.
    """
    wheel = build(tmp_path, **env)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        [about] = (name for name in names if name.endswith("/WHEEL"))
        lines = files.read(about).decode().splitlines()
    assert "Root-Is-Purelib: true" in lines and "Tag: py3-none-any" in lines
    assert "headgate/engine/pure.py" in names
    assert [name for name in names if name.endswith(".so") or ".data/" in name] == []


def test_the_first_lines_of_the_readme_run_from_a_wheel(tmp_path):
    """In an empty environment, without an index to fetch from: the wheel needs no compiler and pulls nothing."""
    wheel, home = build(tmp_path, HEADGATE_PURE="1"), tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    into = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(into, check=True)
    lines = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[0]
    assert len(lines.strip().splitlines()) <= 5
    ran = subprocess.run([str(python), "-I", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "True 2 0.0\n"
