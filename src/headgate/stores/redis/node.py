"""One server: its connections for threads, and whether it answers."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from headgate.clock import SECOND
from headgate.stores.breaker import Breaker
from headgate.stores.redis.connect import Connector
from headgate.stores.redis.library import ResponseError
from headgate.wording import log_of

MOST_HOPS: Final = 5
"""The most times that a command is sent: again only if a server replied that it had not run it."""
MOST_FREE: Final = 64
LONG_IDLE: Final = 1.0
"""Seconds after which the server may have closed an idle connection."""

Address = tuple[str, int] | None
log = log_of("headgate")


class Away(ConnectionError):
    """The breaker is open: the server is not asked."""


class Node:
    """One server."""

    def __init__(self, connector: Connector, address: Address) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}" if address else connector.url.service or "server"
        self.breaker = Breaker()
        self._connector = connector
        self._free: deque[tuple[Any, float]] = deque()
        """Free connections, and the time since which each is free."""

    def ask(self, data: bytes, replies: int = 1, began: float | None = None) -> list[Any]:
        """Send data and return `replies` replies; an error that the server sends is a reply too.

        The deadline counts from `began`.
        """
        if began is None:
            began = time.monotonic()
        connection = self._idle()
        if connection is None:
            connection, began = self._connect(began)
        connection.due = began + self._connector.timeouts.answer
        got: list[Any] = []
        try:
            connection.send_packed_command([data], check_health=False)
            while len(got) < replies:
                try:
                    got.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    got.append(error)
        except ValueError as nonsense:
            connection.disconnect()
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        except BaseException:
            # A reply that arrives later would be read as the answer to the next command.
            connection.disconnect()
            raise
        if len(self._free) < MOST_FREE:
            self._free.append((connection, time.monotonic()))
        else:
            connection.disconnect()
        return got

    def _idle(self) -> Any:  # noqa: ANN401
        """Return a free connection; one that was idle for a while is checked, since the server may have closed it."""
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                return None
            if time.monotonic() - since < LONG_IDLE or not connection.hung_up():
                return connection
            connection.disconnect()

    def _connect(self, began: float) -> tuple[Any, float]:
        """Return a new connection, and the start of the answer's time, which includes connecting after a failure."""
        # While the breaker is open, only a probe connects, and no caller waits for it.
        hurried = self.breaker.troubled and not self.breaker.open
        try:
            connection = self._connector.connect(self.address, began + self._connector.patience(hurried))
        except ValueError as nonsense:
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        return connection, began if hurried else time.monotonic()

    def command(self, *words: bytes | int) -> Any:  # noqa: ANN401
        """Send one plain command, and return its reply."""
        texts = [b"%d" % word if isinstance(word, int) else word for word in words]
        reply = self.ask(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def hang_up(self) -> None:
        """Close the free connections: the next command connects again."""
        while self._free:
            try:
                self._free.pop()[0].disconnect()
            except IndexError:
                return

    def forget(self) -> None:
        """Drop all connections after a fork: they are the parent's."""
        self._free = deque()
        self.breaker = Breaker()


def server_time(node: Node) -> int:
    """Return the server's time in microseconds since the epoch."""
    seconds, micros = node.command(b"TIME")
    return int(seconds) * SECOND + int(micros)
