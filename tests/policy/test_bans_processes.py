"""Bans on stores that processes share: processes that serve requests learn of a ban that another one has made."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headgate import Policy
from tests.support import ROOT
from tests.support.urls import url_of

RULES = [{"name": "api", "key": "ip", "limits": "100000/minute"}]
SERVE = """
import sys, time
from headgate.web.wsgi import RateLimitMiddleware

app = RateLimitMiddleware(lambda environ, start: start("200 OK", []) or [], {"rules": %r}, store=sys.argv[1])
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "QUERY_STRING": "", "REMOTE_ADDR": "203.0.113.7"}
seen = []
for _ in range(2000):
    list(app(dict(environ), lambda status, headers, *_: seen.append(status[:3])))
    if len(seen) < 2 or seen[-1] != seen[-2]:
        print(seen[-1], flush=True)
    time.sleep(0.005)
"""


@pytest.mark.parametrize("kind", ["shared", "redis", "sqlite", "postgresql"])
def test_every_process_learns_of_a_ban(kind, tmp_path, request):
    """Two processes that admit a key refuse it after a ban, and admit it after the unban, without any restart."""
    url = url_of(kind, tmp_path, request)
    command = [sys.executable, "-c", SERVE % RULES, url]
    with Policy({"rules": RULES}).bind(url) as limits:
        serving: list[Any] = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
        try:
            for change, expected in (
                (lambda: None, "200"),
                (lambda: limits.ban("api", "203.0.113.7", "1h"), "429"),
                (lambda: limits.unban("api", "203.0.113.7"), "200"),
            ):
                change()
                for each in serving:
                    assert each.stdout.readline().strip() == expected
        finally:
            for each in serving:
                each.kill()
                each.wait()
                each.stdout.close()
