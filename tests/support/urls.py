"""URLs of stores of every kind, for tests that open them by their URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine import NATIVE
from tests.support.postgres import PROGRAMS, WHY_NOT, running


def url_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a store of this kind; the test is skipped where it cannot be had. A busy machine is given time."""
    if kind == "redis":
        return f"{request.getfixturevalue('server').url}?deadline=5"
    if kind == "postgresql":
        if PROGRAMS is None:
            pytest.skip(WHY_NOT)
        return running().url()
    if kind == "shared" and not NATIVE:
        pytest.skip("shared stores need the native engine")
    files = {"shared": f"shared://{folder}/store", "sqlite": f"sqlite://{folder}/limits.db?deadline=5"}
    return files.get(kind, "memory://")
