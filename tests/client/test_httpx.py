"""The transport of httpx, where it differs from the others: its own transport, made when asked, and its errors."""

from __future__ import annotations

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest

from headgate import Budget
from headgate.client import Retries
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


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_errors_that_another_attempt_cannot_mend_are_the_callers(library):
    """A certificate, a URL and a full pool of one's own say nothing about the server; a handshake that is cut does."""
    attempts: dict[Any, int] = {
        caused_by(library.ConnectError("certificate"), ssl.SSLCertVerificationError()): 1,
        caused_by(library.ConnectError("version"), caused_by(OSError(), ssl.SSLError())): 1,
        library.PoolTimeout("all connections are in use"): 1,
        library.UnsupportedProtocol("ftp://"): 1,
        caused_by(library.ConnectError("cut"), ssl.SSLEOFError()): 4,
        library.ConnectError("refused"): 4,
    }
    for error, expected in attempts.items():

        def fail(request: Any, error: Exception = error) -> Any:
            raise error

        budget = Budget("1000/second", retries=Retries(base=0.001, ceiling=0.001))
        http = library.Client(transport=Transport(budget, library.MockTransport(fail)))
        with pytest.raises(library.TransportError) as raised:
            http.get("https://api.example/")
        assert (raised.value, budget.report().sent) == (error, expected)
