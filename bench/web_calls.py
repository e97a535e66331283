"""Apps called in process: what a request takes of the processor, with a limiter and without."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Callable
from itertools import count as numbers
from itertools import repeat
from os import environ
from statistics import median
from time import process_time_ns
from typing import Any

from bench.contestant import OVER, SMALL, WorkloadError
from bench.measure import Figures, _calibrated
from bench.sharer import own_directory
from bench.web_apps import CLASSED, DIRECTORY, NEW, OPEN, SAYS, USED_UP, App, apps

REFUSED = ", refused"
UNSEEN = ", a path never seen before"
WARM_UP = 2_000
"""More than the requests that headgate looks at for hints about how it is set up."""
HEADERS = [
    ("host", "api.example.com"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "application/json"),
    ("accept-language", "en-GB,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br"),
    ("authorization", "Bearer 0123456789abcdef0123456789abcdef"),
    ("connection", "keep-alive"),
]
PEER = ("203.0.113.9", 4000)

Answer = tuple[int, set[bytes]]
"""A status, and the lower-case names of the header fields."""


def call_in_process(name: str, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of processor time a request, the making of its scope or environ included: the best of all repeats."""
    app = apps()[name.removesuffix(REFUSED).removesuffix(UNSEEN)]
    with own_directory() as directory:
        environ[DIRECTORY] = directory
        with asyncio.Runner() as runner:
            caller = Asgi(app, runner) if app.wire == "asgi" else Wsgi(app)
            prove(app, caller.answer)
            path = USED_UP if name.endswith(REFUSED) else NEW if name.endswith(UNSEEN) else OPEN
            expected = 429 if name.endswith(REFUSED) else 200
            check(app, caller.answer(path), expected)
            caller.spend(path, WARM_UP)
            return timed(lambda count: caller.spend(path, count), lambda: check(app, caller.answer(path), expected),
                         seconds, repeats)  # fmt: skip


_NUMBER = numbers()


def paths_of(path: str, count: int) -> list[str]:
    """One path again and again, or as many as there are requests."""
    return [path.format(next(_NUMBER)) for _ in repeat(None, count)] if path == NEW else [path] * count


def timed(once: Callable[[int], int], check_again: Callable[[], None], seconds: float, repeats: int) -> Figures:
    def quietly(count: int) -> int:
        gc.collect()
        gc.disable()
        span = once(count)
        gc.enable()
        check_again()
        return span

    count = _calibrated(quietly, round(seconds * 1e9), 1_000_000)
    spans = [quietly(count) for _ in repeat(None, max(3, repeats))]
    return {"ns": min(spans) / count, "median_ns": median(spans) / count, "hits": count, "repeats": len(spans)}


def prove(app: App, answer: Callable[[str], Answer]) -> None:
    """The small limit admits the first 20 of 25 requests and no other."""
    found = [answer(USED_UP)[0] for _ in range(SMALL + OVER)]
    expected = [200] * SMALL + [429 if app.bare and app.limits else 200] * OVER
    if found != expected:
        raise WorkloadError(f"{app.name}: of {SMALL + OVER} requests on a limit of {SMALL} came {found}")


def check(app: App, answer: Answer, expected: int) -> None:
    """The status of the path that is timed, and the fields of whoever says them."""
    status, fields = answer
    says = any(field in fields for field in SAYS)
    if status != expected or (app.bare and not says and not app.silent) or (says and not app.bare):
        raise WorkloadError(f"{app.name}: a request got {status} with {sorted(fields)}, not {expected}")
    if app.sheds not in (None, CLASSED in fields):
        raise WorkloadError(f"{app.name}: a request got {sorted(fields)}: was its load shedder asked?")


class Asgi:
    """An ASGI app, with the scope that a server would give it."""

    def __init__(self, app: App, runner: asyncio.Runner) -> None:
        self._app, self._runner = app.make(), runner
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS]

    def _scope(self, path: str) -> dict[str, Any]:
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": self._headers, "client": PEER, "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip

    def answer(self, path: str) -> Answer:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        self._runner.run(self._app(self._scope(path), _receive, send))
        return sent[0]["status"], {name.lower() for name, _ in sent[0]["headers"]}

    def spend(self, path: str, count: int) -> int:
        app, template = self._app, self._scope(path)

        async def loop() -> int:
            paths = paths_of(path, count)
            start = process_time_ns()
            for each in paths:
                await app({**template, "path": each}, _receive, _send)
            return process_time_ns() - start

        return self._runner.run(loop())


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: Any) -> None:
    pass


class Wsgi:
    """A WSGI app, with the environ that a server would give it."""

    def __init__(self, app: App) -> None:
        self._app = app.make()
        fields = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in HEADERS}
        self._environ = {
            "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "QUERY_STRING": "", "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": PEER[0], "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False, **fields,
        }  # fmt: skip

    def answer(self, path: str) -> Answer:
        told: list[Any] = []
        b"".join(self._app({**self._environ, "PATH_INFO": path}, lambda *given: told.append(given)))
        status, headers = told[0][:2]
        return int(status[:3]), {name.lower().encode() for name, _ in headers}

    def spend(self, path: str, count: int) -> int:
        app, template = self._app, {**self._environ, "PATH_INFO": path}
        paths = paths_of(path, count)
        start = process_time_ns()
        for each in paths:
            answer = app({**template, "PATH_INFO": each}, _start_response)
            for _ in answer:
                pass
            if hasattr(answer, "close"):
                answer.close()
        return process_time_ns() - start


def _start_response(status: str, headers: Any, exc_info: Any = None) -> None:
    pass
