"""A network that misbehaves when told to: a proxy in front of a real server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine

from tests.support.servers import Server, free_port

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Stands between clients and a server; faults are switched from the test's thread and are in force at once.

    One thread of its own carries everything in an event loop, so connections need no locks and end exactly when told.
    A reply is taken to be what arrives in one piece, which is right for short answers to clients that wait for them.
    What befalls "the next reply" befalls whoever is answered next: let a client connect and greet the server before.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = 0
        self.connections = 0
        """Accepted so far."""
        self.requests = 0
        """Pieces received from clients."""
        self.round_trips = 0
        """Requests, or bundles of them, that the server has answered."""
        self._delay = 0.0
        self._cut: int | None = None
        self._requests_flow, self._replies_flow = asyncio.Event(), asyncio.Event()
        self._links: dict[asyncio.Task[None] | None, list[asyncio.StreamWriter]] = {}
        self._listener: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"redis://{self.server.login}127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many clients are connected now."""
        return len(self._links)

    def start(self) -> Proxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        try:
            self.release()
            self.accept()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Hang up on everybody. The thread has ended when this returns. May be called again."""
        if self._loop is None or self._thread is None:
            return
        self.refuse()
        self._do(self._hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def delay(self, seconds: float) -> None:
        """Deliver every piece of a reply so much later; 0 ends it."""
        self._delay = seconds

    def hold(self) -> None:
        """Requests reach the server and are applied, but nobody hears of it until `release`."""
        self._do(self._let_flow(replies=False))

    def hold_requests(self) -> None:
        """Requests do not reach the server until `release`; then they do, even of clients that gave up meanwhile."""
        self._do(self._let_flow(requests=False))

    def release(self) -> None:
        """Deliver what was held in either direction, and hold no more."""
        self._do(self._let_flow(requests=True, replies=True))

    def cut_after(self, n_bytes: int) -> None:
        """Deliver this number of bytes of the next reply, then hang up. Once."""
        self._cut = n_bytes

    def drop_reply(self) -> None:
        """The next request is applied, and its client is hung up on instead of being told. Once."""
        self.cut_after(0)

    def reset(self) -> None:
        """Every connection there is ends with a reset, as if the other host had forgotten it."""
        self._do(self._hang_up(reset=True))

    def refuse(self) -> None:
        """Nobody listens any more; connections already made stay."""
        self._do(self._stop_listening())

    def accept(self) -> None:
        """Listen; after `refuse`, at the same address as before."""
        self._do(self._listen())

    def _do(self, what: Coroutine[None, None, None]) -> None:
        if self._loop is None:
            what.close()
            raise RuntimeError("the proxy was never started, or is closed")
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _let_flow(self, requests: bool | None = None, replies: bool | None = None) -> None:
        for flow, wanted in ((self._requests_flow, requests), (self._replies_flow, replies)):
            if wanted is not None:
                (flow.set if wanted else flow.clear)()

    async def _listen(self) -> None:
        if self._listener is None:
            self.port = self.port or free_port()
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            for runtime in listener.sockets:
                asyncio.get_running_loop().remove_reader(runtime.fileno())
            for _ in range(5):  # who is half way in is let in: asyncio would forget them, sockets and all
                await asyncio.sleep(0)
            listener.close()

    async def _hang_up(self, reset: bool = False) -> None:
        links = dict(self._links)
        for task, (client, *server) in links.items():
            if reset and not client.is_closing():
                client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            for writer in (client, *server):
                writer.transport.abort()
            assert task is not None
            task.cancel()
        await asyncio.gather(*(task for task in links if task), return_exceptions=True)

    async def _serve(self, requests: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        writers = self._links[asyncio.current_task()] = [client]
        try:
            replies, server = await asyncio.open_unix_connection(self.server.socket_path)
            writers.append(server)
            await self._carry(requests, server, replies, client)
        except (OSError, RuntimeError):
            pass  # a server that is down, or stopped for good: the client is hung up on
        finally:
            for writer in writers:
                with contextlib.suppress(OSError):
                    writer.close()
                    await writer.wait_closed()
            del self._links[asyncio.current_task()]

    async def _carry(
        self,
        requests: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        replies: asyncio.StreamReader,
        client: asyncio.StreamWriter,
    ) -> None:
        """Both ways, until one side hangs up."""
        asked = asyncio.Event()
        both = [
            asyncio.create_task(self._carry_requests(requests, server, asked)),
            asyncio.create_task(self._carry_replies(replies, client, asked)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in both:
                way.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _carry_requests(
        self, requests: asyncio.StreamReader, server: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        while piece := await requests.read(1 << 16):
            self.requests += 1
            await self._requests_flow.wait()
            asked.set()
            server.write(piece)
            await server.drain()

    async def _carry_replies(
        self, replies: asyncio.StreamReader, client: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        while piece := await replies.read(1 << 16):
            self.round_trips += asked.is_set()
            asked.clear()
            await asyncio.sleep(self._delay)
            await self._replies_flow.wait()
            cut = self._cut
            if cut is not None:
                self._cut = cut - len(piece) if len(piece) < cut else None
            client.write(piece[:cut])
            await client.drain()
            if cut is not None and self._cut is None:
                return
