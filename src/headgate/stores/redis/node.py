"""One server: its connections for threads, and a circuit breaker for a server that mostly fails."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from headgate.clock import SECOND, SystemClock
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connect import Connector
from headgate.stores.redis.library import FAILURES
from headgate.stores.redis.outgoing import Outgoing
from headgate.stores.redis.senders import Senders
from headgate.wording import log_of

MOST_HOPS: Final = 5
"""The most times that a command is sent: again only if a server replied that it had not run it."""
MOST_FREE: Final = 64
LONG_IDLE: Final = 1.0
"""Seconds after which the server may have closed an idle connection."""

WINDOW_US: Final = 10 * SECOND
"""Failures further apart, from the end of one to the beginning of the next, are not counted together."""
FEWEST: Final = 3
"""The fewest failures that open the breaker."""
RATIO: Final = 0.5
"""The part of the requests since the first failure that must have failed, for the breaker to open."""
MADE_GOOD: Final = 10
"""After this number of successes in a row, earlier failures no longer count."""

Address = tuple[str, int] | None
log = log_of("headgate")


class Away(ConnectionError):
    """The breaker is open: the server is not asked."""


class Breaker:
    """Closed while the server answers; open after it has mostly failed, until a probe has passed.

    Nothing is counted while the server is well: a failure opens a window, and successes are counted only in a window.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self.open = False
        self.troubled = False
        """Whether a window is open, in which successes must be reported too."""
        self._last = self._failures = self._successes = self._in_a_row = 0

    def failed(self, spent: float = 0.0) -> bool:
        """Count a failure that took `spent` seconds. True if this failure opened the breaker."""
        with self._lock:
            now = self._clock.now_us()
            return self._count_failure(now - round(spent * SECOND), now)

    def _count_failure(self, began: int, now: int) -> bool:
        # The time spent in a failure does not count: failures that take longer than the window must still add up.
        if not self.troubled or began - self._last > WINDOW_US:
            self._failures = self._successes = 0
            self.troubled = True
        self._last = now
        self._failures += 1
        self._in_a_row = 0
        opens = (
            not self.open
            and self._failures >= FEWEST
            and self._failures >= RATIO * (self._failures + self._successes)
        )  # fmt: skip
        self.open = self.open or opens
        return opens

    def succeeded(self) -> None:
        """Count a success while a window is open."""
        with self._lock:
            self._successes += 1
            self._in_a_row += 1
            if self._in_a_row >= MADE_GOOD and not self.open:
                self.troubled = False

    def close(self) -> None:
        """Close the breaker after a probe has passed."""
        self.open = self.troubled = False


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
        except ValueError as nonsense:
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
        except ValueError as nonsense:
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
