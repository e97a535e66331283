"""Workers for gRPC as processes: killed and told of changed files while clients call, and behind TLS."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from headgate.edge.envoy.messages import RateLimitResponse
from tests.edge.envoy.support import request
from tests.support.certificates import certificate
from tests.support.edge import HOST, Service
from tests.support.envoy import METHOD, limited, link_limits
from tests.support.loads import Load
from tests.support.servers import wait_until

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
FILE = """\
domain: d
descriptors:
  - {key: k, rate_limit: {name: first, unit: year, requests_per_unit: 100000, algorithm: token-bucket}}
"""
"""A bucket is one word in the store: no worker dies with a lock that others would wait for."""
ASKED = {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}], "hitsAddend": "0"}]}
MOST = 50_000
"""Calls of one load: in the time that they take, a bucket of a year gets no unit back."""


class Callers(Load):
    """Clients that call without a pause, two for each port, each on a connection that it keeps."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(partial(self._run, port) for port in ports * 2)
        self.names: Counter[tuple[int, str]] = Counter()
        """The number of answers, by port and by the name of the limit that they tell; each of them was a yes."""
        self.failures: list[int] = []
        """The port of each call that failed."""

    @property
    def passed(self) -> int:
        return sum(self.names.values())

    def _run(self, port: int) -> None:
        message = request([("k", "v")]).SerializeToString()
        with grpc.insecure_channel(f"{HOST}:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            call: Any = channel.unary_unary(METHOD)
            while not self.ends.is_set() and self.passed < MOST:
                try:
                    answer = RateLimitResponse.FromString(call(message, timeout=20, wait_for_ready=True))
                except grpc.RpcError:
                    self.failures.append(port)
                    time.sleep(0.1)  # the client may not know yet that its connection is gone
                    continue
                assert answer.overall_code == 1
                self.names[port, answer.statuses[0].current_limit.name] += 1


def left(service: Service) -> int:
    """What is left of the limit, as the other port tells."""
    told = json.loads(service.ask("POST", "/json", body=json.dumps(ASKED).encode())[2])
    return int(told["statuses"][0]["limitRemaining"])


def test_no_call_and_no_count_is_lost_while_files_change_and_workers_die(tmp_path: Path) -> None:
    """A directory behind a link is replaced: every worker takes it up, and none a file with a mistake; no call fails.

    A worker that is killed loses the calls on its connections. Each other call is counted once, and its port is served
    again by another worker, with the last good file.
    """
    with limited(tmp_path, 2, FILE) as (service, ports):
        file, old = tmp_path / "limits" / "edge.yaml", service.workers()[2:]  # those for HTTP were started before
        with Callers(ports) as load:
            wait_until(lambda: len(load.names) == 2, "both ports answer")
            link_limits(tmp_path, "v2", FILE.replace("first", "second"))
            wait_until(lambda: all(load.names[port, "second"] for port in ports), "both ports tell the new name")
            file.write_text(FILE.replace("first", "third").replace("year", "yeer"))
            service.line("edge.yaml:3: .*yeer")
            assert load.failures == []
            os.kill(old[0], signal.SIGKILL)
            service.line(r"gRPC worker 1 died \(killed by SIGKILL\); another one takes its place")
            before = load.names[ports[0], "second"]
            wait_until(lambda: load.names[ports[0], "second"] > before + 2, "the port of the dead worker answers")
        assert set(load.failures) <= {ports[0]} and len(load.failures) <= 4
        assert {name for _, name in load.names} == {"first", "second"}
        counted = 100_000 - left(service)
        assert load.passed <= counted <= load.passed + len(load.failures)
        assert old[1] in service.workers() and old[0] not in service.workers()


def test_calls_are_answered_over_tls(tmp_path: Path) -> None:
    """With the certificate of the other port; a client without TLS gets nothing."""
    cert, key = certificate(tmp_path)
    message = request([("k", "v")]).SerializeToString()
    with limited(tmp_path, 1, FILE, "--tls-cert", cert, "--tls-key", key) as (_, (port,)):
        trusting = grpc.ssl_channel_credentials(Path(cert).read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusting) as channel:
            answer = RateLimitResponse.FromString(channel.unary_unary(METHOD)(message, timeout=20))
            assert (answer.overall_code, answer.statuses[0].limit_remaining) == (1, 99_999)
        with grpc.insecure_channel(f"localhost:{port}") as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(METHOD)(message, timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
