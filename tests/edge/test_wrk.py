"""nginx, Traefik, Caddy and Envoy with the configurations of the documentation, a service of 4 workers, and wrk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.edge import serving
from tests.support.envoy import LIMITS, PATIENT, envoy, limited, needs_envoy
from tests.support.proxies import PAGES, app, block_of, installed, patient, proxy
from tests.support.wrk import needs_wrk, passed_and_refused

POLICY = "rules:\n  - {name: load, match: {path: /load}, key: ip, limits: 200/day}\n"
pytestmark = [
    pytest.mark.engineless,
    needs_wrk,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]


@pytest.mark.parametrize("server", [installed(each) for each in PAGES])
def test_exactly_the_limit_passes_under_load(server: str, tmp_path: Path) -> None:
    """32 connections send as fast as they can, and 4 workers decide: 200 requests pass, and all others are refused."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "4") as service,
        app() as app_port,
        proxy(server, patient(block_of(PAGES[server])), app_port, service.port, tmp_path / "proxy") as port,
    ):
        passed, refused = passed_and_refused(port, "/load")
    assert passed == 200 and refused > 200


@needs_envoy
def test_exactly_the_limit_passes_under_load_through_envoy(tmp_path: Path) -> None:
    """Each of 4 workers is asked on a port of its own, and all have one count: 100 requests pass."""
    text = LIMITS.replace("unit: hour", "unit: year")
    with (
        limited(tmp_path, 4, text) as (_, ports),
        app() as app_port,
        envoy(PATIENT, app_port, ports, tmp_path / "e") as port,
    ):
        passed, refused = passed_and_refused(port, "/load")
    assert passed == 100 and refused > 100
