"""Limits for Envoy on a Redis server: one for a fleet, and answers also while the server hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from headgate.edge.envoy import grpc as service
from headgate.edge.envoy.messages import RateLimitResponse
from headgate.stores.redis import RedisStore
from tests.edge.envoy.grpc_port import GrpcPort
from tests.edge.envoy.support import request
from tests.edge.envoy.test_grpc import PATH
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless
FILE = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}\n"
MESSAGE = request([("k", "v")]).SerializeToString()


@pytest.fixture
def calls(tmp_path: Path, server: Server) -> Iterator[list[Any]]:
    """Two services on one server, each with a client."""
    (tmp_path / "d.yaml").write_text(FILE)
    ports = [GrpcPort(tmp_path, RedisStore(server.url, deadline=1)) for _ in range(2)]
    channels = [grpc.insecure_channel(f"127.0.0.1:{port.port}") for port in ports]
    yield [channel.unary_unary(PATH) for channel in channels]
    for channel in channels:
        channel.close()
    for port in ports:
        port.close()


def left(answer: bytes) -> int:
    """What is left, of an answer that is a yes."""
    told = RateLimitResponse.FromString(answer)
    assert told.overall_code == 1
    return int(told.statuses[0].limit_remaining)


def test_services_share_a_limit_and_answer_while_the_server_hangs(calls: list[Any], server: Server) -> None:
    """Each call is counted once. While the server hangs, each service counts alone; then both ask the server again."""
    asked = [calls[number % 2].future(MESSAGE, timeout=20) for number in range(100)]
    assert sorted(left(each.result()) for each in asked) == list(range(900, 1000))
    server.pause()
    try:
        assert [left(call(MESSAGE, timeout=20)) for call in calls] == [999, 999]
    finally:
        server.resume()
    wait_until(lambda: all(left(call(MESSAGE, timeout=20)) < 900 for call in calls), "both ask the server again")


def test_calls_that_wait_for_a_server_are_bounded(
    calls: list[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call too many is an error, on which Envoy decides without the service; it holds no memory."""
    monkeypatch.setattr(service, "MOST_PENDING", 3)
    left(calls[0](MESSAGE, timeout=20))
    server.pause()
    try:
        asked = [calls[0].future(MESSAGE, timeout=20) for _ in range(5)]
        codes = [each.code() for each in asked]
    finally:
        server.resume()
    assert sorted(code.name for code in codes) == ["INTERNAL"] * 2 + ["OK"] * 3
