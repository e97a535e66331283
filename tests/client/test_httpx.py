"""The transport of httpx, where it differs from the others: it makes the library's own transport when first asked."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from headgate import Budget
from headgate.client.httpx import Transport

pytestmark = pytest.mark.engineless


def test_threads_that_begin_together_share_one_transport(monkeypatch):
    """A second transport would be forgotten, and its connections closed while responses are read from them."""
    made = []

    class Slow(httpx2.MockTransport):
        def __init__(self) -> None:
            time.sleep(0.02)
            super().__init__(lambda request: httpx2.Response(200))
            made.append(self)

    monkeypatch.setattr(httpx2, "HTTPTransport", Slow)
    transport = Transport(Budget("1000/second"))
    with ThreadPoolExecutor(8) as pool:
        requests = [httpx2.Request("GET", "http://api.example/") for _ in range(8)]
        assert {response.status_code for response in pool.map(transport.handle_request, requests)} == {200}
    assert len(made) == 1
