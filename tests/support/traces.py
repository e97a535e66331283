"""Real traffic for tests. It is not part of the project: where it is absent, the tests that need it are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT


def found_trace(name: str) -> Path | None:
    """Return the file of a trace, beside the project or above it; None where the traces are absent."""
    return next((path for folder in ROOT.parents if (path := folder / "shared/data/traces" / name).exists()), None)


def trace(name: str) -> Path:
    """Return the file of a trace; a test that needs one is skipped where the traces are absent."""
    if (path := found_trace(name)) is not None:
        return path
    pytest.skip(f"{name} is not here: the traces lie beside the project, in shared/data/traces")
