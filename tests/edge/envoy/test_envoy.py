"""A real Envoy with the configuration of the documentation, and a client of Envoy's own messages."""

from __future__ import annotations

import importlib
import importlib.util
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.access_logs import HOST, place
from tests.support.edge import Service
from tests.support.envoy import CLOSED, ENVOY, LIMITS, METHOD, PATIENT, TOKENS, envoy, limited, needs_envoy
from tests.support.proxies import app, ask, crowd
from tests.support.servers import wait_until

RATE_LIMITS = """\
                            rate_limits:
                              - actions:
                                  - generic_key: {descriptor_value: api}
                                  - remote_address: {}
"""
pytestmark = pytest.mark.engineless
needs_protos = pytest.mark.skipif(
    place("envoy") is None or importlib.util.find_spec("envoy.service") is None,
    reason="xds-protos is not installed: make test-edges",
)


@needs_envoy
def test_envoy_lets_exactly_the_limit_pass(tmp_path: Path) -> None:
    """Of 200 requests on 8 connections through 4 workers, 100 pass; the others see 429 and when to come back.

    An address that a client forges changes nothing.
    """
    with limited(tmp_path, 4) as (_, ports), app() as app_port, envoy(PATIENT, app_port, ports, tmp_path / "e") as port:
        assert len(ports) == 4
        found = crowd(port, "/", 8, 25)
        assert Counter(status for status, _ in found) == {200: 100, 429: 100}
        yes = next(fields for status, fields in found if status == 200)
        no = next(fields for status, fields in found if status == 429)
        assert yes["x-ratelimit-limit"].startswith("100, 100;w=3600")
        assert "retry-after" not in yes
        assert (no["x-ratelimit-limit"], no["x-ratelimit-remaining"]) == (yes["x-ratelimit-limit"], "0")
        assert 0 < int(no["retry-after"]) <= 3600
        assert 0 < int(no["x-ratelimit-reset"]) <= 3600
        forged = [{"X-Forwarded-For": "6.6.6.6"}, {"X-Real-IP": "6.6.6.6"}, {"X-Envoy-External-Address": "6.6.6.6"}]
        assert [ask(port, "/", headers)[0] for headers in forged] == [429] * 3


@needs_envoy
def test_a_page_still_comes_while_the_service_is_away(tmp_path: Path) -> None:
    """A service hangs, then is killed: open by default, closed by the marked line."""
    found = []
    with limited(tmp_path, 2) as (service, ports), app() as app_port:
        opened = envoy(ENVOY, app_port, ports, tmp_path / "open")
        with opened as open_port, envoy(CLOSED, app_port, ports, tmp_path / "closed") as closed_port:
            found.append([ask(port, "/")[0] for port in (open_port, closed_port)])
            service.hang()
            found.append([ask(port, "/")[0] for port in (open_port, closed_port)])
            service.kill()
            found.append([ask(port, "/")[0] for port in (open_port, closed_port)])
    assert found == [[200, 200], [200, 500], [200, 500]]


@needs_envoy
def test_no_call_is_lost_while_workers_are_renewed(tmp_path: Path) -> None:
    """Under load every worker is renewed: each request was decided by the service, and counted once."""
    text = LIMITS.replace("requests_per_unit: 100", "requests_per_unit: 1000000")
    with (
        limited(tmp_path, 2, text) as (service, ports),
        app() as app_port,
        envoy(PATIENT, app_port, ports, tmp_path / "e") as port,
    ):
        before, found = set(service.workers()), crowd(port, "/", 4, 25)
        service.process.send_signal(signal.SIGHUP)
        while before & set(service.workers()) and len(found) < 100_000:
            found += crowd(port, "/", 4, 25)
        assert not before & set(service.workers())
        assert {status for status, _ in found} == {200}
        left = [int(fields["x-ratelimit-remaining"]) for _, fields in found]
        assert sorted(left, reverse=True) == [999_999 - number for number in range(len(found))]


def left(service: Service) -> int:
    """What is left of the limit of this machine."""
    entries = [{"key": "generic_key", "value": "api"}, {"key": "remote_address", "value": HOST}]
    asked = {"domain": "edge", "descriptors": [{"entries": entries, "hitsAddend": "0"}]}
    told = json.loads(service.ask("POST", "/json", body=json.dumps(asked).encode())[2])
    return int(told["statuses"][0].get("limitRemaining", 0))


@needs_envoy
def test_a_response_is_charged_at_its_end(tmp_path: Path) -> None:
    """Of 100 tokens each response uses 60: the second takes what is left, and the third request is refused."""
    assert RATE_LIMITS in PATIENT
    text = PATIENT.replace(RATE_LIMITS, TOKENS)
    with (
        limited(tmp_path, 1) as (service, ports),
        app({"X-Tokens": "60"}) as app_port,
        envoy(text, app_port, ports, tmp_path / "e") as port,
    ):
        for tokens in (40, 0):
            assert ask(port, "/")[0] == 200
            wait_until(lambda expected=tokens: left(service) == expected, f"{tokens} tokens are left")  # type: ignore[misc]
        assert ask(port, "/")[0] == 429


@needs_protos
def test_a_client_of_envoys_own_messages(tmp_path: Path) -> None:
    """The messages that Envoy publishes are understood, and so are the answers; two ports are one count."""
    rls_pb2: Any = importlib.import_module("envoy.service.ratelimit.v3.rls_pb2")
    asked = rls_pb2.RateLimitRequest(domain="edge")
    descriptor = asked.descriptors.add()
    descriptor.entries.add(key="generic_key", value="api")
    descriptor.entries.add(key="remote_address", value="10.0.0.1")
    descriptor.hits_addend.value = 60
    with limited(tmp_path, 2) as (_, ports):
        answers = []
        for port in ports:
            with grpc.insecure_channel(f"{HOST}:{port}") as channel:
                call = channel.unary_unary(
                    METHOD,
                    request_serializer=rls_pb2.RateLimitRequest.SerializeToString,
                    response_deserializer=rls_pb2.RateLimitResponse.FromString,
                )
                answers.append(call(asked, timeout=10))
    told = [(answer.overall_code, answer.statuses[0].limit_remaining, len(answer.statuses)) for answer in answers]
    assert told == [(rls_pb2.RateLimitResponse.OK, 40, 1), (rls_pb2.RateLimitResponse.OVER_LIMIT, 0, 1)]
    assert answers[0].statuses[0].current_limit.unit == rls_pb2.RateLimitResponse.RateLimit.HOUR
    assert answers[1].response_headers_to_add[0].key == "retry-after"
