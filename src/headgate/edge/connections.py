"""Connections of clients that are slow, silent or hostile: each of them costs a bounded time and a bounded memory."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from headgate.system import most_open_files
from headgate.wording import requiring

with requiring("headgate serve", "uvicorn", extra="serve"):
    import uvicorn
    from uvicorn.server import ServerState
with requiring("headgate serve", "httptools", extra="serve"):
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE: Final = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs (60 s), so that none finds it closed."""
PATIENCE: Final = 10.0
"""Seconds that a client gets to send the rest of its request, or to read the rest of its answer."""
LONGEST_HEAD: Final = 65_536
"""Bytes of a request's head: more than nginx passes on by default (32 KB)."""
MOST_DROPPED: Final = 32 * LONGEST_HEAD
"""Bytes of a longer head that are read and dropped, so that its sender comes to read the answer."""
TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
"""A proxy must get an answer: it takes a connection that is cut for a service that is away, and may be open then."""
MOST: Final = 10_000
SPARE: Final = 256
"""Files that a worker needs beside its connections."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a bound on the head of a request, and on the number of connections."""

    most = MOST
    _unread = 0
    """Bytes of a head that is not complete."""
    _whole: Any = None
    """The last request whose body has come to its end."""

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's or uvloop's
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read the next bytes of a connection."""
        if self._unread > LONGEST_HEAD:
            self._drop(data)
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or self.cycle is not self._whole or not _is_answered(self.cycle):
            self._unread = 0
            return
        self._unread += len(data)
        if self._unread > LONGEST_HEAD:
            self.transport.write(TOO_LONG)

    def on_message_complete(self) -> None:
        """Note that a request is whole: until then, what comes is a body, also if the request was answered before.

        The rest of such a body is dropped. A client may send all of it before it reads the answer, and would hear
        nothing if the connection were closed.
        """
        self._whole = self.cycle
        super().on_message_complete()

    def _drop(self, data: bytes) -> None:
        """Drop the rest of a head that is too long; the sweep ends the connection of a client that does not."""
        self._unread += len(data)
        if self._unread > MOST_DROPPED:
            self.transport.abort()


class Connections:
    """The connections of one worker."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401 - an ASGI app
        self.state = ServerState()
        self._config = uvicorn.Config(
            app, interface="asgi3", http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, date_header=False, timeout_keep_alive=KEEP_ALIVE,
        )  # fmt: skip
        self._config.load()
        self._waiting: dict[Any, tuple[Any, float]] = {}
        """Connections whose clients have to do something, what they have to do it for, and since when."""
        BoundedProtocol.most = min(MOST, most_open_files(MOST + SPARE) - SPARE)

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return BoundedProtocol(
            config=self._config, server_state=self.state, app_state={}, _loop=asyncio.get_running_loop()
        )

    def sweep(self, now: float) -> None:
        """Cut connections whose clients have done nothing for too long; called about once a second."""
        before, self._waiting = self._waiting, {}
        every: list[Any] = list(self.state.connections)
        for each in every:
            if not _waits_for_client(each):
                continue
            cycle, since = before.get(each, (each.cycle, now))
            if cycle is not each.cycle:
                since = now
            if now - since >= PATIENCE:
                each.transport.abort()
            else:
                self._waiting[each] = each.cycle, since

    def shut_down(self) -> None:
        """Close idle connections, and each other one after its answer."""
        for each in list(self.state.connections):
            each.shutdown()


def _is_answered(cycle: Any) -> bool:  # noqa: ANN401 - uvicorn's
    """Whether no answer is under way."""
    return cycle is None or cycle.response_complete


def _waits_for_client(connection: Any) -> bool:  # noqa: ANN401 - uvicorn's
    """Whether the client has begun something that it must go on with; an idle connection has a timer of its own."""
    cycle = connection.cycle
    if _is_answered(cycle):
        return connection.timeout_keep_alive_task is None
    return bool(cycle.more_body or connection.flow.write_paused)
