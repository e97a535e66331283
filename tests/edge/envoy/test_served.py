"""`headgate serve --envoy`: both ports of a real service, its check, and its end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from headgate.edge.envoy.messages import RateLimitResponse
from tests.edge.envoy.support import request
from tests.support.edge import HOST, serving
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FILE = "domain: d\ndescriptors:\n  - {key: k, metadata: {a: b}, rate_limit: {unit: day, requests_per_unit: 2}}\n"
ASKED = {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}


def checked(*options: str) -> tuple[int, str]:
    words = [sys.executable, "-m", "headgate", "serve", "--check", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def counted(url: str) -> object:
    """The answers to Envoy, as the admin port tells; both processes must reach one store."""
    with urlopen(f"{url}/counts", timeout=10) as answer:
        seen = json.load(answer)
    assert [store["kind"] for store in seen["stores"]] == ["shared"]
    return next(one["counts"] for one in seen["limiters"] if one["namespace"] == "envoy")


def test_both_ports_are_one_count(tmp_path: Path) -> None:
    """A call by gRPC and a question by JSON spend the same limit, and the admin port has the sum of their answers.

    SIGTERM ends the service in good order.
    """
    (tmp_path / "d.yaml").write_text(FILE)
    options = ("--envoy", str(tmp_path), "--workers", "1", "--grpc", f"{HOST}:0", "--admin", f"{HOST}:0")
    with serving(*options) as service:
        assert "warning: d.yaml:3: `metadata` is read and does nothing" in service.lines
        port = service.line(r"grpc://[^:]+:(\d+)")[1]
        with grpc.insecure_channel(f"{HOST}:{port}") as channel:
            answer: bytes = channel.unary_unary(METHOD)(request([("k", "v")]).SerializeToString(), timeout=20)
        assert RateLimitResponse.FromString(answer).overall_code == 1
        told = [service.ask("POST", "/json", body=json.dumps(ASKED).encode()) for _ in range(2)]
        assert [(status, json.loads(body)["overallCode"]) for status, _, body in told] == [
            (200, "OK"),
            (429, "OVER_LIMIT"),
        ]
        assert int(told[1][1]["retry-after"]) > 0
        assert service.ask("GET", "/json")[0] == 405
        url = service.line(r"admin: ([^,]+),")[1]
        wait_until(lambda: counted(url) == {"allowed": 2, "refused": 1}, "both workers have published")
        assert service.end() == 0


def test_a_check_names_every_mistake(tmp_path: Path) -> None:
    """`--check` reads the files and ends; all mistakes are told with their lines, and nothing is served."""
    (tmp_path / "a.yaml").write_text(FILE)
    assert checked("--envoy", str(tmp_path))[0] == 0
    (tmp_path / "b.yaml").write_text("domain: d\ndescriptors:\n  - {ky: x}\n")
    status, text = checked("--envoy", str(tmp_path))
    assert status == 1
    assert re.findall(r"[ab]\.yaml:\d+", text) == ["b.yaml:1", "b.yaml:3", "b.yaml:3"]


def test_a_port_for_grpc_is_guarded(tmp_path: Path) -> None:
    """Beyond loopback it needs a token or `--open`, as the other port does; without limits it has no use."""
    (tmp_path / "a.yaml").write_text(FILE)
    status, text = checked("--envoy", str(tmp_path), "--grpc", "0.0.0.0:8081")
    assert status == 1 and "--grpc 0.0.0.0:8081 can be reached from other machines" in text
    assert checked("--envoy", str(tmp_path), "--grpc", "0.0.0.0:8081", "--open")[0] == 0
    assert checked("--grpc", "127.0.0.1:8081")[0] == 1
