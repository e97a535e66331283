"""nginx, Traefik and Caddy with the configurations of the documentation, a service of 4 workers, and a real app."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.access_logs import place
from tests.support.edge import serving
from tests.support.proxies import PAGES, Answer, app, ask, block_of, closed, crowd, installed, patient, proxy

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
PROXIES = [installed(each) for each in PAGES]
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
    with proxy(server, patient(block_of(PAGES[server])), app_port, service.port, tmp_path / "proxy") as port:
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
            service.hang()
            if server == "traefik":
                found += waits(service, open_port)
            else:
                found += [ask(port, "/free")[0] for port in (open_port, closed_port)]
            service.kill()
            found += [ask(port, "/free")[0] for port in (open_port, closed_port)]
    assert found == {"nginx": [200, 500, 200, 500], "caddy": [200, 504, 200, 502], "traefik": [200, 500, 500]}[server]


def waits(service, port):
    """The answer of a proxy that waits for a service which hangs: none before the service goes on."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, port, "/free")
        with pytest.raises(TimeoutError):
            asked.result(0.5)
        service.go_on()
        return [asked.result()[0]]


@pytest.mark.skipif(place("nginx") is None, reason="nginx is not installed")
def test_a_head_that_is_too_long_opens_nothing(service, app_port, tmp_path):
    """An nginx with larger buffers passes it on, and the service is not away: a request that is denied stays denied."""
    text = patient(block_of(PAGES["nginx"])).replace("http {", "http {\n    large_client_header_buffers 16 32k;")
    with proxy("nginx", text, app_port, service.port, tmp_path / "proxy") as port:
        assert ask(port, "/denied", {"X-Short": "a"})[0] == 403
        assert ask(port, "/denied", {f"X-{number}": "a" * 6000 for number in range(60)})[0] == 500


@pytest.mark.soak
@pytest.mark.parametrize("server", PROXIES)
def test_no_page_is_lost_while_the_service_ends(server, app_port, tmp_path):
    """A service is told to end under load: requests are decided until it is gone, then they pass as if it were away.

    Traefik has no such option: its requests fail from then on.
    """
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "1") as service,
        proxy(server, block_of(PAGES[server]), app_port, service.port, tmp_path / "proxy") as port,
        ThreadPoolExecutor(1) as pool,
    ):
        before, after = crowd(port, "/free", 2, 10), list[Answer]()
        ending = pool.submit(service.end)
        while not ending.done() and len(after) < 20_000:
            after += crowd(port, "/free", 2, 10)
        assert ending.result() == 0
        gone = crowd(port, "/free", 2, 10)
    assert {status for status, _ in before} == {200}
    assert {status for status, _ in after} <= ({200, 500} if server == "traefik" else {200})
    assert {status for status, _ in gone} == ({500} if server == "traefik" else {200})


@pytest.mark.soak
@pytest.mark.skipif(place("traefik") is None, reason="traefik is not installed: make test-edges")
def test_traefik_gives_up_on_a_service_that_hangs(app_port, tmp_path):
    """It answers 500 after the time that its page tells, which no option makes shorter."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        serving("--policy", str(tmp_path / "policy.yaml"), "--workers", "1") as service,
        proxy("traefik", block_of(PAGES["traefik"]), app_port, service.port, tmp_path / "proxy") as port,
    ):
        service.hang()
        assert ask(port, "/free", timeout=60)[0] == 500
        service.go_on()
