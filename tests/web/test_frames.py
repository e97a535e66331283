"""How many functions a request runs: the cost of a middleware that no profiler of wall time can blur."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headgate
from headgate.engine import NATIVE
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import asgi, get

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
    [(RULE, 98, 26, 20), ({**RULE, "count": {"when": {"status": [401, 403]}}}, 110, 80, 73)],
    ids=["plain", "count.when"],
)
def test_a_request_runs_a_bounded_number_of_functions(rule, first, another_path, again):
    """The first request builds everything once; a new path only looks for its rules; a known path does neither."""
    another = RateLimitMiddleware(_hello, {"rules": [RULE]})
    assert asgi(another, "GET", "/a").status == 200  # the first request of a process fills caches that all apps share
    apps = [RateLimitMiddleware(_hello, {"rules": [rule]}) for _ in range(3)]  # one request in 64 is also sampled
    assert min(_functions_run_by(app, "/a") for app in apps) <= first
    assert min(_functions_run_by(app, "/b") for app in apps) <= another_path
    assert min(_functions_run_by(app, "/a") for app in apps) <= again


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each place")
def test_an_idle_load_shedder_runs_two_functions():
    """Both are the middleware's: a place is taken and given back in C, once the first requests have been looked at."""
    app = RateLimitMiddleware(_hello, {"rules": [], "shed": {}})
    assert app.shedder is not None
    app.shedder.estimator.idle_until = 1 << 62
    begun: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            begun.append(frame.f_code.co_name)

    async def ask() -> None:
        for _ in range(1_000):
            await get(app)
            await asyncio.sleep(0)  # the next turn of the loop
        sys.setprofile(note)
        try:
            for _ in range(3):
                await get(app)
        finally:
            sys.setprofile(before)

    before = sys.getprofile()
    asyncio.run(ask())
    assert begun == ["__call__", "_enter"] * 3
