"""nginx, Traefik and Caddy with the configurations of the documentation, a service of 4 workers, and a real app."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.support.access_logs import place
from tests.support.edge import serving
from tests.support.proxies import app, ask, block_of, closed, crowd, proxy

PAGES = {"nginx": "nginx.md", "traefik": "traefik.md", "caddy": "caddy.md"}
pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
PROXIES = [
    pytest.param(
        each, marks=pytest.mark.skipif(place(each) is None, reason=f"{each} is not installed: make test-edges")
    )
    for each in PAGES
]
POLICY = """\
rules:
  - {name: burst, match: {path: "/burst/{server}"}, key: [ip, {param: server}], limits: 40/day}
  - {name: forged, match: {path: "/forged/{server}", method: GET, host: 127.0.0.1}, key: [ip, {param: server}],
     limits: 5/day}
  - {name: keyed, match: {path: /keyed}, key: {header: x-api-key}, limits: 2/day}
deny: {path: /denied}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service of 4 workers."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY)
    with serving("--policy", str(file), "--workers", "4") as service:
        yield service


@pytest.fixture(scope="module")
def app_port():
    """A real app."""
    with app() as port:
        yield port


@pytest.mark.parametrize("server", PROXIES)
def test_a_proxy_lets_exactly_the_limit_pass(server, service, app_port, tmp_path):
    """Of 160 requests on 8 connections, 40 pass; the client of another sees 429, Retry-After and the header fields.

    Headers that a client forges, also those that name another method, path or address, change nothing.
    """
    with proxy(server, block_of(PAGES[server]), app_port, service.port, tmp_path / "proxy") as port:
        found = crowd(port, f"/burst/{server}", 8, 20)
        assert Counter(status for status, _ in found) == {200: 40, 429: 120}
        no = next(fields for status, fields in found if status == 429)
        assert 0 < int(no["retry-after"]) <= 86_400 / 40
        assert no["ratelimit-policy"] == '"burst";q=40;w=86400' and no["ratelimit"].startswith('"burst";r=0;')
        assert no["content-type"] == "application/problem+json" and no["cache-control"] == "no-store"
        if server == "nginx":
            assert sum('"burst";r=' in fields["ratelimit"] for status, fields in found if status == 200) == 40
        forged = [
            {"X-Forwarded-For": "6.6.6.6"},
            {"X-Forwarded-Method": "POST"},
            {"X-Forwarded-Uri": "/"},
            {"X-Forwarded-Host": "other"},
            {"X-Forwarded-Uri": "/x", "x-forwarded-uri": "/y", "Forwarded": "for=6.6.6.6", "X-Real-IP": "6.6.6.6"},
        ]
        assert [ask(port, f"/forged/{server}", headers)[0] for headers in forged] == [200] * 5
        assert [ask(port, f"/forged/{server}", headers)[0] for headers in forged] == [429] * 5
        keyed = [ask(port, "/keyed", {"X-Api-Key": key + server})[0] for key in ("a", "a", "a", "b")]
        assert keyed == [200, 200, 429, 200]
        assert ask(port, "/denied")[0] == 403


@pytest.mark.parametrize("server", PROXIES)
def test_a_page_still_comes_while_the_service_is_away(server, app_port, tmp_path):
    """A service hangs, then is killed: open by default, closed without the marked line; Traefik is always closed."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    text, found = block_of(PAGES[server]), []
    with serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "1") as service:
        opened = proxy(server, text, app_port, service.port, tmp_path / "open")
        shut = proxy(server, text if server == "traefik" else closed(text), app_port, service.port, tmp_path / "closed")
        with opened as open_port, shut as closed_port:
            assert [ask(port, "/free")[0] for port in (open_port, closed_port)] == [200, 200]
            if server != "traefik":  # it would wait for 30 s
                for pid in (service.process.pid, *service.workers()):
                    os.kill(pid, signal.SIGSTOP)
                found += [ask(port, "/free")[0] for port in (open_port, closed_port)]
            os.killpg(service.process.pid, signal.SIGKILL)
            service.process.wait()
            found += [ask(port, "/free")[0] for port in (open_port, closed_port)]
    assert found == {"nginx": [200, 500, 200, 500], "caddy": [200, 504, 200, 502], "traefik": [500, 500]}[server]
