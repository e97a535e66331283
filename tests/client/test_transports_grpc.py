"""The transports of gRPC: the suite of all transports, in threads and in event loops."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

pytest.importorskip("grpc")
import grpc

from headgate.client import Budget
from headgate.testing import ManualClock
from tests.support.transports import grpc as grpc_clients
from tests.support.transports.service import Service
from tests.support.transports.suite import AwaitedSuite, TransportSuite

pytestmark = pytest.mark.engineless


class TestGrpc(TransportSuite):
    """gRPC, in threads."""

    error = grpc.RpcError

    def serve(self, clock: ManualClock) -> AbstractContextManager[Service]:
        return grpc_clients.grpc_service(clock)

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return grpc_clients.in_threads(budget, address)


class TestGrpcAwaited(AwaitedSuite):
    """gRPC, in event loops."""

    error = grpc.RpcError

    def serve(self, clock: ManualClock) -> AbstractContextManager[Service]:
        return grpc_clients.grpc_service(clock)

    def client(self, budget: Budget, address: str, clock: ManualClock, moves: bool) -> AbstractContextManager[Any]:
        return grpc_clients.in_loops(budget, address, clock, moves)
