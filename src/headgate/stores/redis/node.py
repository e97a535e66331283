"""One server: its connections for threads, and its circuit breaker."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from headgate.clock import SECOND
from headgate.stores.breaker import Breaker
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connect import Connector
from headgate.stores.redis.library import FAILURES, NONSENSE
from headgate.stores.redis.outgoing import Outgoing
from headgate.stores.redis.senders import Senders

MOST_HOPS: Final = 5
"""The most times that a command is sent: again only if a server replied that it had not run it."""
MOST_FREE: Final = 64
LONG_IDLE: Final = 1.0
"""Seconds after which the server may have closed an idle connection."""

Address = tuple[str, int] | None


class Away(ConnectionError):
    """The breaker is open: the server is not asked."""


class Node:
    """One server."""

    def __init__(self, connector: Connector, address: Address) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}" if address else connector.url.service or "server"
        self._connector = connector
        self._begin()

    def _begin(self) -> None:
        self.breaker = Breaker()
        self._free: deque[tuple[Any, float]] = deque()
        """Free connections, and the time since which each is free."""
        # If the store is dropped and not closed: a collector may reach a socket before the connection that closes it.
        self._dropped = weakref.finalize(self, hang_up, self._free)
        self._senders = Senders(self, self._connector.timeouts)

    def ask(self, data: bytes) -> Any:  # noqa: ANN401
        """Send one command by itself and return its reply; an error that the server sends is a reply too."""
        outgoing = Outgoing(data, time.monotonic())
        connection, began = self.connection(outgoing.began, probes=True)
        connection.due = began + self._connector.timeouts.answer
        self.converse(connection, [outgoing])
        return outgoing.reply

    def exchange(self, command: Command, began: float) -> Any:  # noqa: ANN401
        """Like `ask`, for a command that threads may send for each other. Its deadline counts from `began`."""
        length = 0 if command.asking else command.length
        return self._senders.ask(Outgoing(command.encode(), began, 1 + command.asking, length))

    def connection(self, began: float, probes: bool = False) -> tuple[Any, float]:
        """Return a connection, and the start of the answer's time. The server may have gone while a thread waited."""
        if self.breaker.open and not probes:
            raise Away(f"{self.name} is away")
        connection = self._idle()
        return (connection, began) if connection is not None else self._connect(began)

    def converse(self, connection: Any, batch: Sequence[Outgoing]) -> None:  # noqa: ANN401
        """Send commands in one write, and read their replies by the time `due` of the connection."""
        try:
            data = batch[0].data if len(batch) == 1 else b"".join([each.data for each in batch])
            connection.send(data)
            connection.read(batch)
        except NONSENSE as nonsense:
            connection.disconnect()
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        except BaseException as error:
            try:
                # An interrupt of this thread does not concern the others, whose replies still arrive.
                if len(batch) > 1 and not isinstance(error, FAILURES) and connection.readable:
                    with suppress(*FAILURES):
                        connection.read_expected(batch)
            finally:
                # A reply that arrives later would be read as the answer to the next command.
                connection.disconnect()
            raise
        if len(self._free) < MOST_FREE:
            self._free.append((connection, time.monotonic()))
        else:
            connection.disconnect()

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
        except NONSENSE as nonsense:
            raise Away(f"{self.name} does not answer like a Redis or Valkey server") from nonsense
        return connection, began if hurried else time.monotonic()

    def command(self, *words: bytes | int) -> Any:  # noqa: ANN401
        """Send one plain command, and return its reply."""
        texts = [b"%d" % word if isinstance(word, int) else word for word in words]
        reply = self.ask(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def hang_up(self) -> None:
        """Close the free connections: the next command connects again."""
        hang_up(self._free)

    def forget(self) -> None:
        """Drop all connections after a fork: they are the parent's."""
        self._dropped.detach()
        self._begin()


def hang_up(free: deque[tuple[Any, float]]) -> None:
    """Close free connections."""
    while free:
        try:
            free.pop()[0].disconnect()
        except IndexError:  # another thread took the last one
            return


def server_time(node: Node) -> int:
    """Return the server's time in microseconds since the epoch."""
    seconds, micros = node.command(b"TIME")
    return int(seconds) * SECOND + int(micros)
