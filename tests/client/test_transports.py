"""The transports: one suite, and a subclass for each library, in threads and in event loops."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import aiohttp
import httpx
import httpx2
import pytest
import requests

from headgate.client import Budget
from headgate.testing import ManualClock
from tests.support.transports import aiohttp as aiohttp_clients
from tests.support.transports import httpx as httpx_clients
from tests.support.transports import requests as requests_clients
from tests.support.transports.suite import AwaitedSuite, HttpSuite

pytestmark = pytest.mark.engineless


class TestHttpx(HttpSuite):
    """httpx, in threads."""

    library: ClassVar[Any] = httpx
    error: ClassVar[Any] = httpx.TransportError
    makes_up = True

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return httpx_clients.in_threads(self.library, budget, address, self.connections)


class TestHttpx2(TestHttpx):
    """httpx2, in threads."""

    library: ClassVar[Any] = httpx2
    error = httpx2.TransportError


class TestHttpxAwaited(AwaitedSuite, HttpSuite):
    """httpx, in event loops."""

    library: ClassVar[Any] = httpx
    error: ClassVar[Any] = httpx.TransportError
    makes_up = True

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return httpx_clients.in_loops(self.library, budget, address, clock, moves)


class TestHttpx2Awaited(TestHttpxAwaited):
    """httpx2, in event loops."""

    library: ClassVar[Any] = httpx2
    error = httpx2.TransportError


class TestRequests(HttpSuite):
    """requests."""

    error = requests.ConnectionError
    makes_up = True

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return requests_clients.in_threads(budget, address)


class TestAiohttp(AwaitedSuite, HttpSuite):
    """aiohttp."""

    error = aiohttp.ClientConnectionError

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return aiohttp_clients.in_loops(budget, address, clock, moves)
