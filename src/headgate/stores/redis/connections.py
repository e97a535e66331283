"""redis-py's connections, changed to keep one deadline over all their steps.

The lookup of a name, each of its addresses, the handshakes and every command share the time that is left. But a
deadline limits the server's time, not this process's own. A thread that other threads kept from running may find its
time over while the reply is already in its socket, so a clock alone proves nothing: the socket is read once more
before the server counts as late, and a server that was asked late still gets a moment to answer.
"""

from __future__ import annotations

import asyncio
import inspect
import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from headgate.stores.deadline import MANY_TURNS, Deadline
from headgate.stores.redis.library import ResponseError, redis
from headgate.stores.redis.outgoing import Outgoing, split
from headgate.stores.redis.resolver import Address, Resolver

LOOK: Final = 0.001
"""Seconds for which a socket is still read when the time is over."""
MOST_LOOKS: Final = 8
"""The most such reads for one command: a reply that arrives in many small pieces is late too."""
READ: Final = 65_536
"""The most bytes of one read."""
FAIR: Final = 0.005
"""The fewest seconds that a server has to answer."""
_OLDER: Final = "driver_info" not in inspect.signature(redis.connection.AbstractConnection.__init__).parameters
UNANNOUNCED: Final[dict[str, None]] = {"lib_name": None, "lib_version": None} if _OLDER else {"driver_info": None}
"""No CLIENT SETINFO: it takes two round trips for each connection, and an ACL would have to allow it."""


class Timeouts(NamedTuple):
    """Timeouts in seconds."""

    answer: float
    connect: float


def shared(due: float, count: int, now: float) -> float:
    """Return the end of one share of the time that is left, if `count` steps share it.

    A share is at least a quarter of the time: few of many servers are silent, and a very short share is useless.
    """
    return now + max(FAIR, (due - now) / min(count, 4))


class _TimelySocket:
    """A socket that keeps the deadline of its connection over any number of reads.

    The timeout of the system's socket is set again only if it differs by more than `LOOK`: mostly it does not, since
    each decision has as much time as the one before.
    """

    def __init__(self, sock: socket.socket, connection: Any) -> None:  # noqa: ANN401
        self._sock = sock
        self._connection = connection
        self._told = 0.0
        self.unread = b""
        """Bytes that were read from the system's socket, and that redis-py is to read."""
        self.fresh = self._reads(sock.recv)
        self._fresh_into = self._reads(sock.recv_into)

    def _reads(self, read: Callable[..., Any]) -> Callable[..., Any]:
        connection = self._connection

        def timely(*arguments: Any) -> Any:  # noqa: ANN401
            left = connection.due - monotonic()
            if left < LOOK:
                left = LOOK
                connection.looks -= 1
                if connection.looks < 0:
                    raise TimeoutError("no answer within the deadline")
            if not -LOOK < left - self._told < LOOK:
                self._tell(left)
            return read(*arguments)

        return timely

    def recv(self, most: int) -> Any:  # noqa: ANN401
        """Read, for redis-py's own parser."""
        if not self.unread:
            return self.fresh(most)
        given, self.unread = self.unread[:most], self.unread[most:]
        return given

    def recv_into(self, buffer: Any) -> Any:  # noqa: ANN401
        """Read, for the parser of hiredis."""
        if not self.unread:
            return self._fresh_into(buffer)
        given = self.recv(len(buffer))
        buffer[: len(given)] = given
        return len(given)

    def sendall(self, data: bytes) -> None:
        """Send a command."""
        connection = self._connection
        left = connection.due - monotonic()
        if left < LOOK:
            left = LOOK
        if not -LOOK < left - self._told < LOOK:
            self._tell(left)
        self._sock.sendall(data)
        fair = monotonic() + FAIR
        if connection.due < fair:
            connection.due = fair
        connection.looks = MOST_LOOKS

    def _tell(self, left: float) -> None:
        self._sock.settimeout(left)
        self._told = left

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: the deadline of the connection sets the timeout."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._sock, name)


class _Timely:
    """A connection for threads that keeps the deadline in its `due`."""

    due = 0.0
    looks = 0
    parsing = False
    """Whether some of the replies have been parsed."""
    resolver: Resolver
    _sock: Any
    socket_connect_timeout: float | None

    def _connect(self) -> Any:  # noqa: ANN401
        self.socket_connect_timeout = max(FAIR, self.due - monotonic())
        return _TimelySocket(super()._connect(), self)  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        """Send commands. An interrupt leaves the connection open, unlike in redis-py: replies may still be read."""
        self._sock.sendall(data)

    def read(self, batch: Sequence[Outgoing]) -> None:
        """Read the replies to commands that were sent."""
        if self.read_expected(batch):
            return
        # Errors, other types and replies in several pieces are for redis-py's parser, which reads `unread` first.
        self.parsing = True
        for each in batch:
            while each.missing:
                try:
                    each.reply = self.read_response(disable_decoding=True)  # type: ignore[attr-defined]
                except ResponseError as error:
                    each.reply = error
                each.missing -= 1
        self.parsing = False

    def read_expected(self, batch: Sequence[Outgoing]) -> bool:
        """Read once; False if these are not the replies that are expected. May be repeated after an interrupt."""
        sock = self._sock
        if not sock.unread:
            sock.unread = sock.fresh(READ)
        if not split(sock.unread, batch):
            return False
        sock.unread = b""
        return True

    @property
    def readable(self) -> bool:
        """Whether `read_expected` may be repeated: nothing has been parsed, and the connection is open."""
        return self._sock is not None and not self.parsing

    def hung_up(self) -> bool:
        """Whether the server has closed the connection: then the socket can be read although nothing was asked."""
        if self._sock is None:
            return True
        looking = select.poll()
        looking.register(self._sock.fileno(), select.POLLIN)
        return bool(looking.poll(0))


class _Tcp(redis.connection.Connection):
    """Tries the addresses of its host one after the other, each for its share of the time."""

    due: float
    resolver: Resolver

    def _connect(self) -> socket.socket:
        found = self.resolver.addresses(self.host, self.port, self.due)
        failure: OSError = ConnectionError(f"{self.host} has no address")
        for at, address in enumerate(found):
            try:
                return self._reach(address, shared(self.due, len(found) - at, monotonic()))
            except OSError as error:
                failure = error
            if monotonic() >= self.due:
                break
        raise failure

    def _reach(self, address: Address, due: float) -> socket.socket:
        sock = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            for level, option, value in self._socket_options():
                sock.setsockopt(level, option, value)
            sock.settimeout(max(FAIR, due - monotonic()))
            sock.connect(address[1])
            sock.settimeout(max(FAIR, self.due - monotonic()))  # for the TLS handshake, if there is one
        except BaseException:
            sock.close()
            raise
        return sock

    def _socket_options(self) -> Iterator[tuple[int, int, Any]]:
        yield socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        if self.socket_keepalive:
            yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
            for option, value in (self.socket_keepalive_options or {}).items():
                yield socket.IPPROTO_TCP, option, value


class _TimelyTcp(_Timely, _Tcp):
    pass


class _TimelyTls(_Timely, redis.connection.SSLConnection, _Tcp):
    pass


class _TimelyUnix(_Timely, redis.connection.UnixDomainSocketConnection):
    pass


class _AwaitedTcp(redis.asyncio.connection.Connection):
    """Like `_Tcp`, in an event loop; `due` is a time of the loop's clock."""

    due: float
    resolver: Resolver
    _address: str

    async def _connect(self) -> None:
        found = await self.resolver.addresses_async(self.host, int(self.port), self.due)
        failure: OSError = ConnectionError(f"{self.host} has no address")
        loop = asyncio.get_running_loop()
        for at, (_, address) in enumerate(found):
            self._address = address[0]
            try:
                async with Deadline(shared(self.due, len(found) - at, loop.time()), MANY_TURNS):
                    await super()._connect()  # type: ignore[no-untyped-call]
                    return
            except OSError as error:
                failure = error
        raise failure

    def _connection_arguments(self) -> Mapping[str, Any]:
        given = {**super()._connection_arguments(), "host": self._address}
        return {**given, "server_hostname": self.host} if given.get("ssl") else given


class _AwaitedTls(_AwaitedTcp, redis.asyncio.connection.SSLConnection):
    pass


class _AwaitedUnix(redis.asyncio.connection.UnixDomainSocketConnection):
    due: float
    resolver: Resolver


async def hang_up(connection: Any) -> None:  # noqa: ANN401
    """Close an awaited connection at once. A TLS shutdown would wait half a minute for a silent server."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)


TIMELY: Final[dict[str, Any]] = {"tcp": _TimelyTcp, "tls": _TimelyTls, "unix": _TimelyUnix}
AWAITED: Final[dict[str, Any]] = {"tcp": _AwaitedTcp, "tls": _AwaitedTls, "unix": _AwaitedUnix}
