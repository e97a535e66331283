"""Real traffic for tests. It is not part of the project: where it is absent, the tests that need it are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT


def trace(name: str) -> Path:
    """Return the file of a trace, beside the project or above it."""
    for folder in ROOT.parents:
        path = folder / "shared/data/traces" / name
        if path.exists():
            return path
    pytest.skip(f"{name} is not here: the traces lie beside the project, in shared/data/traces")
