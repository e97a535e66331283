"""The queries of docs/observe.md, asked of a real Prometheus that scrapes the pages of an app."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from headgate.observe.wsgi import pages
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.servers import free_port, wait_until

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(PROMETHEUS is None, reason="there is no Prometheus here: apt install prometheus"),
]
PAGE = Path(__file__).parents[2] / "docs" / "observe.md"
POLICY = """
stores: {away: "sqlite://FOLDER/none/limits.db"}
rules:
  - {name: api, match: {path: /api}, key: ip, limits: 2/minute}
  - {name: quiet, match: {path: /api}, key: ip, limits: 1000/minute}
  - {name: trial, match: {path: /api}, key: ip, limits: 1/minute, act: observe}
  - {name: lost, match: {path: /lost}, key: ip, limits: 100/minute, store: away}
"""
CONFIG = """
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs: [{job_name: app, static_configs: [{targets: ["127.0.0.1:PORT"]}]}]
"""


class Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Prometheus:
    """A server whose API is asked."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series; nothing while the server starts."""
        given = {"query": query} | ({} if at is None else {"time": str(at)})
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{urlencode(given)}", timeout=10) as answer:
                data: Any = json.load(answer)["data"]["result"]
        except HTTPError as error:
            error.close()
            return []
        except OSError:
            return []
        return [(one["metric"], float(one["value"][1])) for one in data]


@contextmanager
def scraping(app: RateLimitMiddleware, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the pages of an app every 200 ms."""
    server = make_server("127.0.0.1", 0, pages(app), handler_class=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "prometheus.yml").write_text(CONFIG.replace("PORT", str(server.server_port)))
    port = free_port()
    words = [
        f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen([str(PROMETHEUS), *words])
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait(20)
        server.shutdown()
        server.server_close()


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


def ask(app: RateLimitMiddleware, path: str, count: int) -> None:
    for _ in range(count):
        list(app({"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "203.0.113.7"}, lambda *_: None))


def by_rule(found: list[tuple[dict[str, str], float]]) -> dict[str, float]:
    return {labels["rule"]: value for labels, value in found}


def rounded(found: dict[str, float]) -> dict[str, float]:
    """Values without the last digits, which depend on the order of divisions."""
    return {rule: round(value, 9) for rule, value in found.items()}


def test_the_queries_of_the_page_answer_their_questions(tmp_path):
    """A rule that refuses, one that never does, one on trial, a lost store and a bad file: each query finds its own."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("FOLDER", str(tmp_path)))
    (block,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    share, use, never, down, failing, trial = re.findall(r"^# .+\n(.+)$", block, re.MULTILINE)
    with closing(RateLimitMiddleware(hello, str(file))) as app, scraping(app, tmp_path) as prometheus:
        before = 'count_over_time(headgate_decisions_total{rule="api",result="refused"}[1m]) >= 2'
        wait_until(lambda: prometheus.ask(before), "the page was scraped twice")
        assert prometheus.ask("up == 1")
        assert [prometheus.ask(query) for query in (down, failing, trial)] == [[], [], []]
        ask(app, "/api", 8)
        ask(app, "/lost", 3)
        file.write_text("rules: [{name: api}]")
        assert app.reload() is False
        after = "headgate_policy_reload_failures_total == 1"
        wait_until(lambda: prometheus.ask(after), "the counts were scraped")
        ((_, at),) = prometheus.ask("vector(time())")
        rate = by_rule(prometheus.ask('rate(headgate_decisions_total{result="allowed"}[5m])', at))
        shares = {"api": 0.75, "quiet": 0.0, "trial": 0.0, "lost": 0.0}
        assert rounded(by_rule(prometheus.ask(share, at))) == shares
        amounts = {"api": 2, "quiet": 1000, "trial": 1, "lost": 100}
        used = {rule: rate[rule] / (amount / 60) for rule, amount in amounts.items()}
        assert rounded(by_rule(prometheus.ask(use, at))) == rounded(used)
        assert rate["api"] > 0
        assert by_rule(prometheus.ask(never, at)).keys() == {"quiet", "lost"}
        assert [labels for labels, _ in prometheus.ask(down, at)] == [{"store": "away"}]
        assert [labels["namespace"] for labels, _ in prometheus.ask(failing, at)] == ["policy"]
        assert by_rule(prometheus.ask(trial, at)).keys() == {"trial"}
