"""A real Envoy with the configuration of the documentation, and the service that it asks."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.access_logs import HOST, listens, place
from tests.support.edge import Service, serving
from tests.support.servers import free_port, wait_until

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
LIMITS, ENVOY, TOKENS = re.findall(
    r"^```yaml\n(.*?)^```$", (ROOT / "docs/edge/envoy.md").read_text(), re.MULTILINE | re.DOTALL
)
ENDPOINT = "              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}\n"
PATIENT = ENVOY.replace("timeout: 0.05s", "timeout: 10s")
"""For tests that count: on a busy machine 50 ms may pass, and Envoy would let requests pass."""
CLOSED = ENVOY.replace("failure_mode_deny: false # OPEN", "failure_mode_deny: true # OPEN")
needs_envoy = pytest.mark.skipif(place("envoy") is None, reason="Envoy is not installed: make test-edges")


def link_limits(folder: Path, version: str, text: str) -> None:
    """Write limits into a new directory, and let the link point there in one step."""
    (folder / version).mkdir()
    (folder / version / "edge.yaml").write_text(text)
    (folder / "next").symlink_to(version)
    (folder / "next").replace(folder / "limits")


@contextmanager
def limited(folder: Path, workers: int, text: str = LIMITS, *options: str) -> Iterator[tuple[Service, list[int]]]:
    """A service with limits in `folder/limits/edge.yaml`, those of the page unless told, and its ports for gRPC.

    `limits` is a link, as that of many operators.
    """
    link_limits(folder, "v1", text)
    words = ("--envoy", str(folder / "limits"), "--workers", str(workers), "--grpc", f"{HOST}:0", *options)
    with serving(*words) as service:
        ready = next(line for line in service.lines if line.startswith("ready"))
        yield service, [int(port) for port in re.findall(r"grpc://[^:]+:(\d+)", ready)]


@contextmanager
def envoy(
    text: str, app_port: int, ports: list[int], folder: Path, threads: int = 2, admin: int | None = None
) -> Iterator[int]:
    """Envoy with a configuration of the page on other ports; its port. Each thread has a connection to the service.

    With `admin`, Envoy tells its counters on that port.
    """
    port = free_port()
    assert ENDPOINT % 8081 + ENDPOINT % 8082 in text
    text = text.replace(ENDPOINT % 8081 + ENDPOINT % 8082, "".join(ENDPOINT % each for each in ports))
    text = text.replace("port_value: 10000", f"port_value: {port}").replace(
        "port_value: 8000", f"port_value: {app_port}"
    )
    if admin is not None:
        text = f"admin: {{address: {{socket_address: {{address: {HOST}, port_value: {admin}}}}}}}\n{text}"
    folder.mkdir()
    (folder / "envoy.yaml").write_text(text)
    binary = place("envoy")
    assert binary is not None
    options = ["--disable-hot-restart", "--concurrency", str(threads), "-l", "warn"]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([binary, "-c", str(folder / "envoy.yaml"), *options], stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "Envoy listens")
        assert process.poll() is None, (folder / "output").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(20)


def counters(admin: int, prefix: str) -> dict[str, int]:
    """What Envoy has counted under names that begin with a prefix, without that prefix."""
    with urllib.request.urlopen(f"http://{HOST}:{admin}/stats?format=json", timeout=10) as answer:
        told = json.load(answer)["stats"]
    return {
        each["name"].removeprefix(prefix): each["value"] for each in told if each.get("name", "").startswith(prefix)
    }
