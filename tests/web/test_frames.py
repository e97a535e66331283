"""How many functions a request runs: the cost of a middleware that no profiler of wall time can blur."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headgate
from headgate.engine import NATIVE
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import asgi

HOME = str(Path(headgate.__file__).parent)
RULE = {"name": "api", "match": {"path": "/**"}, "key": "ip", "limits": "100/minute"}


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def _functions_run_by(app: Any, path: str) -> int:
    """Return how often a function of Headgate begins or goes on while a request is answered."""
    begun = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal begun
        if event == "call" and frame.f_code.co_filename.startswith((HOME, "<string>")):
            begun += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert asgi(app, "GET", path).status == 200
    finally:
        sys.setprofile(before)
    return begun


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each decision")
@pytest.mark.parametrize(
    ("rule", "first", "another_path", "again"),
    [(RULE, 80, 35, 25), ({**RULE, "count": {"when": {"status": [401, 403]}}}, 110, 85, 75)],
    ids=["plain", "count.when"],
)
def test_a_request_runs_a_bounded_number_of_functions(rule, first, another_path, again):
    """The first request builds everything once; a new path only looks for its rules; a known path does neither."""
    app = RateLimitMiddleware(_hello, {"rules": [rule]})
    assert _functions_run_by(app, "/a") <= first
    assert _functions_run_by(app, "/b") <= another_path
    assert _functions_run_by(app, "/a") <= again
