"""Files that workers follow: the last good version, however the operator changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.edge import checked_files as module
from headgate.edge.checked_files import CheckedFiles

pytestmark = pytest.mark.engineless


def test_a_relative_path_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory `.` has a name of its own, and is still followed after the process has gone elsewhere."""
    monkeypatch.setattr(module, "EVERY", 0.0)
    folder, texts = tmp_path / "limits", list[str]()
    folder.mkdir()
    (folder / "edge.yaml").write_text("one")
    monkeypatch.chdir(folder)
    kept = CheckedFiles(".", tmp_path / "kept", lambda copy: texts.append((Path(copy) / "edge.yaml").read_text()))
    monkeypatch.chdir(tmp_path)
    (folder / "edge.yaml").write_text("another")
    kept.look()
    assert texts == ["one", "another"] and Path(kept.path).name == "limits"
