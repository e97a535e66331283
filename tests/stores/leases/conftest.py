"""A bank for tests of leases: limiters that lease, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.leasing import Bank, open_bank


@pytest.fixture(params=["threads", "tasks"])
def bank(server, request) -> Iterator[Bank]:
    """A bank on the file's server, for threads and for event loops."""
    with open_bank(server, request.param) as bank:
        yield bank
