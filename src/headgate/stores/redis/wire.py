"""The one module that knows redis-py: how a server is found, reached and understood.

redis-py's own defaults wait five seconds and retry ten times, timeouts included, so that a script that was applied may
be applied again. Of a URL or a ready client only who and where is taken; timeouts, retries and decoding are ours.
"""

from __future__ import annotations

import binascii
import inspect
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from headgate.errors import StoreError
from headgate.stores.redis.target import Target
from headgate.wording import log_of, missing

try:
    import redis
    import redis.asyncio
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AskError,
        MovedError,
        NoScriptError,
        ReadOnlyError,
        RedisClusterException,
        RedisError,
        ResponseError,
        TryAgainError,
    )  # fmt: skip
    from redis.retry import Retry
except ImportError as reason:
    raise StoreError(missing("a Redis store", "redis", "redis")) from reason

__all__ = [
    "FAILURES", "AskError", "MovedError", "NoScriptError", "ReadOnlyError", "ResponseError", "Timeouts",
    "TryAgainError", "Wire", "slot_of", "understood",
]  # fmt: skip

FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError, EOFError)
"""What asking a server can end with when it is away, or unwell."""

CLASSES: Final = {"tcp": "Connection", "tls": "SSLConnection", "unix": "UnixDomainSocketConnection"}
SLOTS: Final = 16_384
LOOK: Final = ("INFO", "memory")
_OLDER: Final = "driver_info" not in inspect.signature(redis.connection.AbstractConnection.__init__).parameters
UNANNOUNCED: Final[dict[str, None]] = {"lib_name": None, "lib_version": None} if _OLDER else {"driver_info": None}
"""No CLIENT SETINFO: two round trips at each connection, and a right that an ACL would have to grant."""


class Timeouts(NamedTuple):
    """Seconds."""

    answer: float
    connect: float


def slot_of(subject: bytes) -> int:
    """The cluster slot of `hg1:{...}`."""
    return binascii.crc_hqx(subject[subject.index(b"{") + 1 : -1], 0) % SLOTS


class _Timely:
    """A socket that keeps a deadline over any number of reads: a reply that trickles in is late all the same."""

    def __init__(self, sock: socket.socket, connection: Any) -> None:  # noqa: ANN401
        self._sock = sock
        self._connection = connection
        self.recv = self._within(sock.recv)
        self.recv_into = self._within(sock.recv_into)
        self.sendall = self._within(sock.sendall)

    def _within(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timely(*arguments: Any) -> Any:  # noqa: ANN401
            left = self._connection.due - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer within the deadline")
            self._sock.settimeout(left)
            return call(*arguments)

        return timely

    def settimeout(self, seconds: float | None) -> None:
        """The deadline rules."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._sock, name)


def _timely(base: Any) -> Any:  # noqa: ANN401
    """A connection class of redis-py whose sockets keep the deadline in its `due`."""

    class Timely(base):  # type: ignore[misc]
        due = 0.0
        socket_connect_timeout: float | None

        def _connect(self) -> _Timely:
            left = max(0.001, self.due - time.monotonic())
            self.socket_connect_timeout = min(self.socket_connect_timeout or left, left)
            return _Timely(super()._connect(), self)

        def hung_up(self) -> bool:
            """Whether the server said something unasked, which is a good-bye."""
            if self._sock is None:
                return True
            looking = select.poll()
            looking.register(self._sock.fileno(), select.POLLIN)
            return bool(looking.poll(0))

    return Timely


TIMELY: Final = {name: _timely(getattr(redis.connection, kind)) for name, kind in CLASSES.items()}


class Wire:
    """Makes connections to the servers of one target."""

    def __init__(self, target: Target, timeouts: Timeouts) -> None:
        self.target = target
        self.timeouts = timeouts
        self._cluster: redis.RedisCluster | None = None
        self._moved: dict[int, tuple[str, int]] = {}
        """Slots that servers said are elsewhere, since the nodes were found."""
        self._looked = False

    def patience(self, hurried: bool) -> float:
        """Seconds to connect. After a failure nobody is made to wait longer than for an answer."""
        return min(self.timeouts) if hurried else self.timeouts.connect

    def connect(self, place: tuple[str, int] | None, hurried: bool = False) -> Any:  # noqa: ANN401
        """A connection to a place of the cluster, or to the one server that is meant; connected."""
        due = time.monotonic() + self.patience(hurried)
        if self.target.kind == "sentinel":
            place = self._sentinel(redis.sentinel.Sentinel).discover_master(self.target.service)
        made = TIMELY[self.target.transport](
            **self._options(place), socket_timeout=self.timeouts.answer, retry=Retry(NoBackoff(), 0)
        )
        made.due = due
        try:
            made.connect()
            if self._looks():
                made.send_command(*LOOK)
                with suppress(ResponseError):  # not everybody may ask
                    _warn_of_eviction(made.read_response(disable_decoding=True))
        except BaseException:
            made.disconnect()
            raise
        return made

    async def connect_async(self, place: tuple[str, int] | None) -> Any:  # noqa: ANN401
        """As `connect`; it waits for answers for ever, since whoever asks has a deadline."""
        if self.target.kind == "sentinel":
            sentinel = self._sentinel(redis.asyncio.sentinel.Sentinel)
            try:
                place = await sentinel.discover_master(self.target.service)
            finally:
                for each in sentinel.sentinels:
                    await each.aclose()
        made = getattr(redis.asyncio.connection, CLASSES[self.target.transport])(
            **self._options(place), socket_timeout=None, retry=redis.asyncio.retry.Retry(NoBackoff(), 0)
        )
        try:
            await made.connect()
            if self._looks():
                await made.send_command(*LOOK)
                with suppress(ResponseError):
                    _warn_of_eviction(await made.read_response(disable_decoding=True))
        except BaseException:
            await made.disconnect(nowait=True)
            raise
        return made

    def _looks(self) -> bool:
        """Whether somebody still has to look at the server's settings; whoever is told so does it."""
        looked, self._looked = self._looked, True
        return not looked

    def _options(self, place: tuple[str, int] | None) -> dict[str, Any]:
        where = {"host": place[0], "port": place[1]} if place else {}
        ours = {"socket_connect_timeout": self.timeouts.connect, "protocol": 2}
        return {**self.target.options, **where, **ours, **UNANNOUNCED}

    def _sentinel(self, kind: Any) -> Any:  # noqa: ANN401 - the sync or the async one
        reach = {"socket_timeout": self.timeouts.connect, "socket_connect_timeout": self.timeouts.connect}
        return kind(self.target.hosts, sentinel_kwargs={**self.target.sentinel_options, **reach})

    def find_nodes(self) -> None:
        """Ask the cluster who serves which slot."""
        if self._cluster is None:
            node = redis.cluster.ClusterNode
            nodes = [node(host, port) for host, port in self.target.hosts]  # type: ignore[no-untyped-call]
            self._cluster = redis.RedisCluster(
                startup_nodes=nodes,
                require_full_coverage=False,
                retry=Retry(NoBackoff(), 0),
                ssl=self.target.transport == "tls",
                socket_timeout=self.timeouts.connect,
                socket_connect_timeout=self.timeouts.connect,
                protocol=2,
                **self.target.options,
            )
        else:
            self._cluster.nodes_manager.initialize()
        self._moved.clear()

    def place_of(self, slot: int) -> tuple[str, int] | None:
        """Who serves a slot of the cluster, as far as is known."""
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        cluster = self._cluster  # once: another thread may close it
        nodes = cluster.nodes_manager.slots_cache.get(slot) if cluster else None
        return (nodes[0].host, int(nodes[0].port)) if nodes else None

    def places(self) -> list[tuple[str, int]]:
        """Every node of the cluster that serves slots."""
        cluster = self._cluster
        slots = cluster.nodes_manager.slots_cache if cluster else {}
        known = {(nodes[0].host, int(nodes[0].port)) for nodes in list(slots.values()) if nodes}
        return sorted(known | set(self._moved.values()))

    def moved(self, error: MovedError) -> tuple[str, int]:
        """A slot lives elsewhere now; remember where."""
        place = self._moved[error.slot_id] = (error.host, int(error.port))
        return place

    def forget(self) -> None:
        """After a fork: the cluster is found anew."""
        self._cluster = None

    def close(self) -> None:
        """Let go of the cluster's own connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def understood(error: Exception) -> Exception:
    """The error by its own class, where redis-py does not tell.

    Older ones know redirections only from their own cluster client; Redis 6.2 wraps what a script ran into.
    """
    code, _, rest = str(error).partition(" ")
    if type(error) is not ResponseError:
        return error
    if code in ("MOVED", "ASK"):
        return MovedError(rest) if code == "MOVED" else AskError(rest)
    return ReadOnlyError(str(error)) if "-READONLY " in rest else error


def _warn_of_eviction(info: object) -> None:
    """A server that evicts any key forgets limits when memory is short: abusers first, since they fill it."""
    policy = info.partition(b"maxmemory_policy:")[2].split(b"\r")[0] if isinstance(info, bytes) else b""
    if policy.startswith(b"allkeys"):
        log_of("headgate").warning(
            "the server evicts by %s: when its memory is full it forgets limits before their time; "
            "set maxmemory-policy to noeviction or volatile-ttl",
            policy.decode("ascii", "replace"),
        )
