"""Clients that do not wait for each other: requests come at a rate, by chance, however many are under way.

`python -m bench.open_load WIRE PORT RATE SECONDS` prints a line of JSON. A rate below zero is a number of clients that
ask as fast as they are answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

HOST = "127.0.0.1"
TIMEOUT = 1.0
"""Seconds after which a client leaves."""
CONNECTIONS = 200
"""Connections to an event loop that are open from the start, as those of a proxy; a request that finds none free opens
another. A thread of gunicorn would wait for the first request of each."""
REQUEST = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
OK, BUSY, OTHER = "ok", "busy", "other"


class Heard(NamedTuple):
    """What came back of the requests that were sent after the first `SETTLE` part of the time."""

    asked: int
    ok: int
    """Served within the timeout."""
    busy: int
    """Refused: 503, or UNAVAILABLE."""
    other: int
    late: int
    """Not answered within the timeout."""
    p50: float
    p99: float
    """Of the latency of those served, in milliseconds."""
    seconds: float
    lag: float
    """The most milliseconds that a request was sent too late: a client that lags is no open load."""


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, idle: list[Connection]) -> None:
        self._idle, self._read = idle, b""
        self.answer: asyncio.Future[str] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, blank, body = self._read.partition(b"\r\n\r\n")
        lower = head.lower()
        if not blank or len(body) < int(lower.partition(b"content-length:")[2].split(b"\r\n")[0] or 0):
            return
        self._read = b""
        status = head[9:12]
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(OK if status == b"200" else BUSY if status == b"503" else OTHER)
        if b"connection: close" in lower:
            self.transport.close()
        else:
            self._idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(OTHER)


async def over_http(port: int, connections: int = 0) -> Callable[[], Awaitable[str]]:
    idle: list[Connection] = []
    for _ in range(connections):
        _, opened = await asyncio.get_running_loop().create_connection(lambda: Connection(idle), HOST, port)
        idle.append(opened)

    async def ask() -> str:
        loop = asyncio.get_running_loop()
        connection = idle.pop() if idle else None
        if connection is None or connection.transport.is_closing():
            _, connection = await loop.create_connection(lambda: Connection(idle), HOST, port)
        connection.answer = loop.create_future()
        connection.transport.write(REQUEST)
        try:
            return await connection.answer
        except asyncio.CancelledError:  # the client leaves
            connection.transport.abort()
            raise

    return ask


async def over_grpc(port: int) -> Callable[[], Awaitable[str]]:
    import grpc.aio

    from bench.flooded_services import METHOD

    call: Any = grpc.aio.insecure_channel(f"{HOST}:{port}").unary_unary(METHOD)

    async def ask() -> str:
        try:
            await call(b"", timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError from None
            return BUSY if error.code() == grpc.StatusCode.UNAVAILABLE else OTHER
        return OK

    return ask


WIRES = {"asgi": partial(over_http, connections=CONNECTIONS), "wsgi": over_http, "grpc": over_grpc}
SETTLE = 0.25


class Run:
    """The answers of one run."""

    def __init__(self, ask: Callable[[], Awaitable[str]], seconds: float) -> None:
        self._ask = ask
        self.began = perf_counter()
        self.ends = self.began + seconds
        self._counts = self.began + SETTLE * seconds
        self.found: dict[str, int] = {OK: 0, BUSY: 0, OTHER: 0, "late": 0}
        self.latencies: list[float] = []
        self.lag = 0.0

    async def ask(self, due: float) -> None:
        """Ask once, at this instant; the latency counts from it."""
        try:
            found = await asyncio.wait_for(self._ask(), TIMEOUT)
        except TimeoutError:
            found = "late"
        except OSError:
            found = OTHER
        if due >= self._counts:
            self.found[found] += 1
            if found == OK:
                self.latencies.append(perf_counter() - due)

    async def open(self, rate: float) -> None:
        chance, due, tasks = random.Random(19), self.began, set()
        while (due := due + chance.expovariate(rate)) < self.ends:
            wait = due - perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            self.lag = max(self.lag, perf_counter() - due)
            task = asyncio.ensure_future(self.ask(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def closed(self, clients: int) -> None:
        async def client() -> None:
            while (now := perf_counter()) < self.ends:
                await self.ask(now)

        await asyncio.gather(*(client() for _ in range(clients)))

    def heard(self) -> Heard:
        ranked = sorted(self.latencies) or [0.0]
        p50, p99 = (1e3 * ranked[min(len(ranked) - 1, int(part * len(ranked)))] for part in (0.5, 0.99))
        found = self.found
        asked, span = sum(found.values()), self.ends - self._counts
        return Heard(asked, found[OK], found[BUSY], found[OTHER], found["late"], p50, p99, span, 1e3 * self.lag)


async def main(wire: str, port: int, rate: float, seconds: float) -> Heard:
    run = Run(await WIRES[wire](port), seconds)
    await (run.open(rate) if rate > 0 else run.closed(round(-rate)))
    return run.heard()


if __name__ == "__main__":
    given = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    print(json.dumps(asyncio.run(main(*given))._asdict()))
