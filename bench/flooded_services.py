"""Services that can serve a known number of requests a second, with a load shedder in front of them and without.

A server imports `app`; `python -m bench.flooded_services PORT` is that of gRPC. `BENCH_SERVICE` names the service. If
`BENCH_SHED` is set, it has the load shedder that an empty section `shed` of a policy makes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

SERVICE, SHED = "BENCH_SERVICE", "BENCH_SHED"
POLICY: dict[str, Any] = {"rules": [], "shed": {}}
METHOD = "/bench.Flooded/Serve"
THREADS = 64
"""Of gunicorn and of gRPC: more than the pool has places, as for a service whose requests wait for its database."""

logging.getLogger("headgate").setLevel(logging.ERROR)


class Service(NamedTuple):
    name: str
    server: Literal["uvicorn", "gunicorn", "grpc"]
    places: int
    """Requests that are served at the same time; 0: each computes, on one core."""
    seconds: float
    """That a request takes."""
    slowdown: float
    """The most that the 99th percentile of latency may grow under load."""
    fast: bool = False
    """On the server with its native parser and loop."""

    @property
    def rate(self) -> float:
        """Requests a second that it can serve, but for the server's own work."""
        return (self.places or 1) / self.seconds


SERVICES = {
    each.name: each
    for each in (
        Service("uvicorn, 5 ms of CPU", "uvicorn", 0, 0.005, 4),
        Service("uvicorn and uvloop, 5 ms of CPU", "uvicorn", 0, 0.005, 4, fast=True),
        Service("uvicorn, pool of 20 x 50 ms", "uvicorn", 20, 0.05, 3),
        Service("gunicorn, pool of 8 x 40 ms", "gunicorn", 8, 0.04, 3),
        Service("grpc, pool of 8 x 40 ms", "grpc", 8, 0.04, 3),
    )
}


def asgi(service: Service) -> Any:
    free = asyncio.Semaphore(service.places or 1)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if service.places:
            async with free:
                await asyncio.sleep(service.seconds)
        else:
            compute(service.seconds)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    if SHED not in os.environ:
        return app
    from headgate.web.asgi import RateLimitMiddleware

    return RateLimitMiddleware(app, POLICY)


def compute(seconds: float) -> None:
    """By the time of this thread on the processor, which others do not slow down."""
    until = time.thread_time_ns() + round(seconds * 1e9)
    while time.thread_time_ns() < until:
        pass


class Places:
    """A pool that gives its places in the order in which threads ask, as pools of connections do.

    asyncio's Semaphore does so too. Of threading's, threads that come take what others wait for: few requests would
    then wait for long in the service itself, whatever is in front of it.
    """

    def __init__(self, count: int) -> None:
        self._free, self._lock = count, threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()  # until a place is handed over

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def wsgi(service: Service) -> Any:
    free = Places(service.places)

    def app(environ: Any, start_response: Any) -> list[bytes]:
        with free:
            time.sleep(service.seconds)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"{}"]

    if SHED not in os.environ:
        return app
    from headgate.web.wsgi import RateLimitMiddleware

    return RateLimitMiddleware(app, POLICY)


def serve_grpc(service: Service, port: int) -> None:
    import grpc

    from headgate.web.grpc import RateLimitInterceptor

    free = Places(service.places)

    def answer(request: bytes, context: Any) -> bytes:
        with free:
            time.sleep(service.seconds)
        return b"{}"

    _, name, method = METHOD.split("/")
    interceptors = [RateLimitInterceptor(POLICY)] if SHED in os.environ else []
    server = grpc.server(ThreadPoolExecutor(THREADS), interceptors=interceptors)
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if SERVICE in os.environ:
    chosen = SERVICES[os.environ[SERVICE]]
    if chosen.server != "grpc":
        app = asgi(chosen) if chosen.server == "uvicorn" else wsgi(chosen)
    elif __name__ == "__main__":
        serve_grpc(chosen, int(sys.argv[1]))
