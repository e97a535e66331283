"""What can go wrong between a Redis store and its server, and how tests look at it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socketserver
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, get_args

import pytest
import redis

from headgate import AsyncLimiter, Limiter
from headgate.engine import Decision
from headgate.stores import OnError
from headgate.stores.redis import RedisStore
from tests.support.adapters.loops import Run, in_loop
from tests.support.awaiting import Test, awaited_by
from tests.support.proxy import Proxy
from tests.support.servers import Server, wait_until

DEADLINE = 0.25
PATIENT = 5.0
"""For tests that are not about deadlines."""
SLACK = 4.0
"""For a machine that is busy with something else. Whatever hangs, hangs for longer: a late reply for 5 s."""
POLICIES: tuple[OnError, ...] = get_args(OnError)
MANY = "1/hour burst 10000"
"""Nothing drains in the first hour, so what is left says how much was charged."""
SAID = {"local": (True, True, 9, 0.0), "allow": (True, True, 10, 0.0), "deny": (True, False, 0, 1.0)}
"""`said` of the first degraded answer for `10/week`."""


def said(decision: Decision) -> tuple[bool, bool, int, float]:
    return decision.degraded, decision.allowed, decision.remaining, decision.retry_after


@contextlib.contextmanager
def open_store(url: str, **options) -> Iterator[RedisStore]:
    store = RedisStore(url, **{"deadline": DEADLINE, **options})
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def limiter_on(url: str, limit: str = MANY, *, on_error: OnError = "local", **options: Any) -> Iterator[Limiter]:
    """A limiter on a store of its own."""
    with open_store(url, **options) as store:
        yield Limiter(limit, store=store, on_error=on_error)


class Awaited:
    """A limiter whose verbs are called, and awaited in an event loop."""

    def __init__(self, limiter: AsyncLimiter, run: Run[Any]) -> None:
        self._limiter, self._run = limiter, run

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *given, **more: self._run(getattr(self._limiter, verb)(*given, **more))


@contextlib.contextmanager
def limiters(way: str, url: str, **options: Any) -> Iterator[Callable[..., Any]]:
    """Makes limiters on one store, called by threads or awaited in an event loop."""
    if way == "called":
        with open_store(url, **options) as store:
            yield lambda limit, **more: Limiter(limit, store=store, **more)
        return
    with in_loop() as run:
        store = RedisStore(url, **{"deadline": DEADLINE, **options})
        try:
            yield lambda limit, **more: Awaited(AsyncLimiter(limit, store=store, **more), run)
        finally:
            run(store.aclose())


each_way = pytest.mark.parametrize("way", ["called", "awaited"])


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < seconds


def run(url: str, story: Callable[[RedisStore], Coroutine[None, None, None]], **options) -> None:
    """Tell a story in an event loop of its own, with a store of its own."""

    async def main() -> None:
        store = RedisStore(url, **{"deadline": DEADLINE, **options})
        try:
            await story(store)
        finally:
            await store.aclose()

    asyncio.run(main())
    gc.collect()  # what was left open complains here, and not in another test


def with_store(wire: str, **options: Any) -> Callable[[Test], Callable[..., None]]:
    """A test in an event loop of its own, with a store on the server or on the proxy before it."""
    tell = lambda end, story: run(end.url, lambda store: story(store=store), **options)  # noqa: E731
    return awaited_by(tell, wire, gives=("store",))


async def hits(limiter: AsyncLimiter, count: int, key: str = "k") -> list[int]:
    """The answers to this number of hits, issued at once."""
    decisions = await asyncio.gather(*(limiter.hit(key) for _ in range(count)))
    return [-1 if decision.degraded else decision.remaining for decision in decisions]


def spent(server: Server, key: str = "k", limit: str = MANY) -> int:
    """How much the server has charged, asked on a way of its own."""
    with open_store(server.url, deadline=5) as store:
        decision = Limiter(limit, store=store, on_error="raise").peek(key, 0)
    return int(decision.limit - decision.remaining)


def calls(server: Server, *commands: str) -> int:
    """How often the server has been sent these."""
    stats = server.info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"] for command in commands)


class Fault(NamedTuple):
    """Of the network."""

    inflict: Callable[[Proxy], None]
    arrive: int
    """How many of one request reach the server in the end."""


def _leave(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.reset()


FAULTS = {
    "late reply": Fault(lambda proxy: proxy.delay(5), 1),
    "half a reply": Fault(lambda proxy: proxy.cut_after(20), 1),
    "no reply": Fault(Proxy.drop_reply, 1),
    "replies held": Fault(Proxy.hold, 1),
    "requests held": Fault(Proxy.hold_requests, 1),
    "reset": Fault(Proxy.reset, 0),
    "nobody there": Fault(_leave, 0),
}


def heal(proxy: Proxy) -> None:
    proxy.delay(0)
    proxy.release()
    proxy.accept()


class Trickle(Proxy):
    """Delivers replies byte by byte, each so much later than the one before."""

    async def _carry_replies(
        self, replies: asyncio.StreamReader, client: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        while byte := await replies.read(1):
            await asyncio.sleep(self._delay)
            client.write(byte)


@contextlib.contextmanager
def stranger(reply: bytes) -> Iterator[str]:
    """Another program at the server's address, which sends one reply only."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while self.request.recv(1 << 16):
                    self.request.sendall(reply)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        serving = threading.Thread(target=listener.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"redis://127.0.0.1:{listener.server_address[1]}"
        finally:
            listener.shutdown()
            serving.join()


NESTED = b"*1\r\n" * 10_000
NONSENSE = (b"$zz\r\n", b"+OK\r\n", b":1\r\n", b"*0\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", NESTED)


class Trouble(NamedTuple):
    """Of the server."""

    begin: Callable[[Server], object]
    end: Callable[[Server], object]
    why: str
    """Part of the reason that an error gives."""
    login: str = ""


def _tell(*lines: str) -> Callable[[Server], None]:
    def tell(server: Server) -> None:
        for line in lines:
            server.command(*line.split())

    return tell


def _spin(server: Server) -> None:
    server.command("CONFIG", "SET", "busy-reply-threshold", 1)
    threading.Thread(target=_spin_until_killed, args=(server.socket_path,)).start()
    wait_until(lambda: says(server, "BUSY"), "the server is busy")


def _spin_until_killed(path: str) -> None:
    with redis.Redis(unix_socket_path=path) as client, contextlib.suppress(redis.RedisError):
        client.eval("while true do end", 0)


def _let_go(server: Server) -> None:
    server.command("SCRIPT", "KILL")
    wait_until(server.client().ping, "the script has ended")


def says(server: Server, word: str) -> bool:
    """Whether it answers even a ping with this error."""
    try:
        server.client().ping()
    except redis.RedisError as error:
        return word in str(error)
    return False


ANN = "ACL SETUSER ann reset on ~* +@all"
TROUBLES = {
    "OOM": Trouble(_tell("CONFIG SET maxmemory 1"), _tell("CONFIG SET maxmemory 0"), "maxmemory"),
    "READONLY": Trouble(_tell("REPLICAOF 127.0.0.1 1"), _tell("REPLICAOF NO ONE"), "read only"),
    "NOPERM": Trouble(_tell(f"{ANN} >a -@scripting"), _tell(f"{ANN} >a"), "permissions", "ann:a@"),
    "NOPERM for its keys": Trouble(_tell(f"{ANN} >a resetkeys"), _tell(f"{ANN} >a"), "ermissions", "ann:a@"),
    "wrong password": Trouble(_tell(f"{ANN} >b"), _tell(f"{ANN} >a"), "password", "ann:a@"),
    "too many clients": Trouble(_tell("CONFIG SET maxclients 1"), _tell("CONFIG SET maxclients 10000"), "."),
    "BUSY": Trouble(_spin, _let_go, "BUSY"),
    "paused": Trouble(Server.pause, Server.resume, "Timeout"),
    "killed": Trouble(Server.kill, Server.start, "ConnectionError"),
}


@contextlib.contextmanager
def in_trouble(server: Server, name: str) -> Iterator[str]:
    """The server is unwell inside the block, and well after it."""
    trouble = TROUBLES[name]
    trouble.begin(server)
    try:
        yield f"unix://{trouble.login}{server.socket_path}"
    finally:
        trouble.end(server)
