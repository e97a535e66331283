"""`blocks: all` over processes: a block that one process begins holds under every rule of the others, over reloads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from headgate.web.wsgi import RateLimitMiddleware
from tests.support import ROOT
from tests.support.edges import PEER, plain_wsgi, wsgi
from tests.support.urls import url_of

LOGIN = {"name": "login", "match": {"path": "/login"}, "key": "ip", "limits": "1/minute", "for": "10m", "blocks": "all"}
API = {"name": "api", "match": {"path": "/api"}, "key": "ip", "limits": "100000/minute"}
SERVE = """
import sys, time
from headgate.web.wsgi import RateLimitMiddleware

app = RateLimitMiddleware(lambda environ, start: start("200 OK", []) or [], {"rules": %r}, store=sys.argv[1])
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/api", "QUERY_STRING": "", "REMOTE_ADDR": sys.argv[2]}
seen = []
for _ in range(4000):
    list(app(dict(environ), lambda status, headers, *_: seen.append(status[:3])))
    if len(seen) < 2 or seen[-1] != seen[-2]:
        print(seen[-1], flush=True)
    time.sleep(0.005)
"""


@pytest.mark.parametrize("kind", ["shared", "redis", "sqlite", "postgresql"])
def test_a_block_holds_in_every_process(kind, tmp_path, request):
    """Two processes serve a client until a third refuses its login; a reset of the rule lets them serve it again."""
    url = url_of(kind, tmp_path, request)
    command = [sys.executable, "-c", SERVE % ([LOGIN, API],), url, PEER]
    app = RateLimitMiddleware(plain_wsgi, {"rules": [LOGIN, API]}, store=url)
    serving: list[Any] = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]

    def log_in() -> None:
        assert [wsgi(app, "GET", "/login").status for _ in range(2)] == [200, 429]

    try:
        for change, expected in (
            (lambda: None, "200"),
            (log_in, "429"),
            (lambda: app.reset("login", PEER), "200"),
        ):
            change()
            for each in serving:
                assert each.stdout.readline().strip() == expected
    finally:
        for each in serving:
            each.kill()
            each.wait()
            each.stdout.close()
        app.close()


@pytest.mark.parametrize("kind", ["memory", "shared", "redis"])
def test_a_block_outlives_a_reload(kind, tmp_path, request):
    """A policy that is read again, with other rules, still refuses the client, also under a rule that is new."""
    url = url_of(kind, tmp_path, request)
    file = tmp_path / "policy.json"

    def write(*rules: Any) -> None:
        file.write_text(json.dumps({"rules": rules}))

    write(LOGIN, API)
    app = RateLimitMiddleware(plain_wsgi, str(file), store=url)
    codes = [wsgi(app, "GET", path).status for path in ("/api", "/login", "/login", "/api")]
    assert codes == [200, 200, 429, 429]
    write(
        LOGIN,
        {**API, "limits": "50/minute"},
        {"name": "new", "match": {"path": "/new"}, "key": "ip", "limits": "5/hour"},
    )
    assert app.reload()
    assert [wsgi(app, "GET", path).status for path in ("/api", "/new", "/login")] == [429, 429, 429]
    app.reset("login", PEER)
    assert [wsgi(app, "GET", path).status for path in ("/api", "/new", "/login")] == [200, 200, 200]
    app.close()
