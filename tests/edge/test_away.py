"""How long a page takes while the service is away: nginx, Caddy and Envoy with the configurations of the documentation.

Traefik is not among them: it has no option to let a request pass.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.support.access_logs import HOST
from tests.support.edge import Service, serving
from tests.support.envoy import ENVOY, envoy, limited
from tests.support.proxies import PAGES, app, ask, block_of, installed, proxy

BOUND = 0.150
"""Seconds within which a page has to come."""
REQUESTS = 50
POLICY = "rules:\n  - {name: site, key: ip, limits: 1000000/day}\n"
TIMEOUTS = {
    "nginx": ("proxy_connect_timeout", "proxy_read_timeout"),
    "caddy": ("dial_timeout", "response_header_timeout"),
    "envoy": ("timeout:",),  # from the first attempt to connect to the answer
}
pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]


def text_of(server: str) -> str:
    """The configuration on the page of a proxy."""
    return ENVOY if server == "envoy" else block_of(PAGES[server])


@pytest.mark.parametrize("server", TIMEOUTS)
def test_the_timeouts_on_a_page_leave_time_for_the_app(server):
    """A proxy waits for the service for at most 100 ms in all: of 150 ms, a third is left for the page."""
    found = [re.findall(rf"^\s+{name} ([\d.]+)(m?)s\b", text_of(server), re.MULTILINE) for name in TIMEOUTS[server]]
    assert [len(each) for each in found] == [1] * len(found)
    assert sum(float(number) / (1000 if milli else 1) for ((number, milli),) in found) <= 0.100


@contextmanager
def asked(server: str, folder: Path) -> Iterator[tuple[Service, int]]:
    """A service, and the port of a proxy that asks it about each request for a page."""
    with ExitStack() as running:
        app_port = running.enter_context(app())
        if server == "envoy":
            service, ports = running.enter_context(limited(folder, 2))
            port = running.enter_context(envoy(ENVOY, app_port, ports, folder / "proxy"))
        else:
            (folder / "policy.yaml").write_text(POLICY)
            service = running.enter_context(serving("--policy", str(folder / "policy.yaml")))
            port = running.enter_context(proxy(server, text_of(server), app_port, service.port, folder / "proxy"))
        yield service, port


@contextmanager
def crowded() -> Iterator[int]:
    """A port whose queue of connections is full, as that of a service is that has hung for long."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(16):
            waiting = opened.enter_context(socket.socket())
            waiting.settimeout(0.2)
            if waiting.connect_ex(listener.getsockname()) != 0:
                break
        else:
            pytest.fail("the queue does not fill up")
        yield listener.getsockname()[1]


def pages(port: int) -> list[float]:
    """Ask for a page again and again, each time on a connection of its own; the seconds that each took."""
    spent = []
    for _ in range(REQUESTS):
        begin = time.perf_counter()
        status, _ = ask(port, "/free")
        spent.append(time.perf_counter() - begin)
        assert status == 200
    return spent


def in_time(spent: list[float]) -> bool:
    """Whether pages came within the bound: most of them, since a busy machine may hold up some."""
    return median(spent) <= BOUND


@pytest.mark.soak
@pytest.mark.parametrize("server", [installed(each) for each in TIMEOUTS])
@pytest.mark.parametrize("state", ["stopped", "hung", "killed"])
def test_a_page_comes_in_time_while_the_service_is_away(server, state, tmp_path):
    """A service was stopped, hangs, or was killed: the page still comes within 150 ms."""
    with asked(server, tmp_path) as (service, port):
        pages(port)  # the proxy has connections to the service
        {"stopped": service.end, "hung": service.hang, "killed": service.kill}[state]()
        spent = pages(port)
        assert in_time(spent), spent
        service.kill()


@pytest.mark.soak
@pytest.mark.parametrize("server", [installed(each) for each in TIMEOUTS])
def test_a_page_comes_in_time_while_the_service_takes_no_connections(server, tmp_path):
    """The queue of a service that has hung for long is full: no connection comes about, and the page is in time."""
    with crowded() as full, app() as app_port, ExitStack() as running:
        if server == "envoy":
            port = running.enter_context(envoy(ENVOY, app_port, [full], tmp_path / "proxy"))
        else:
            port = running.enter_context(proxy(server, text_of(server), app_port, full, tmp_path / "proxy"))
        spent = pages(port)
        assert in_time(spent), spent
