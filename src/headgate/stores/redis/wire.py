"""The one module that knows redis-py: how a server is found, reached and understood.

redis-py's own defaults wait five seconds and retry ten times, timeouts included, so that a script that was applied may
be applied again. Of a URL or a ready client only who and where is taken; timeouts, retries and decoding are ours.
"""

from __future__ import annotations

import binascii
import inspect
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from headgate.errors import StoreError

try:
    import redis
    import redis.asyncio
    from redis.backoff import NoBackoff
    from redis.exceptions import AskError, MovedError, NoScriptError, ReadOnlyError, RedisError, ResponseError
    from redis.retry import Retry
except ImportError as reason:
    raise StoreError("a Redis store needs redis-py: pip install 'headgate[redis]'") from reason

__all__ = [
    "FAILURES", "AskError", "MovedError", "NoScriptError", "ReadOnlyError", "ResponseError", "Target", "Timeouts",
    "Wire", "read_client", "read_url", "slot_of", "understood",
]  # fmt: skip

FAILURES: Final = (RedisError, OSError, TimeoutError, EOFError)
"""What asking a server can end with when it is away, or unwell."""

SCHEMES: Final = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
CLASSES: Final = {"tcp": "Connection", "tls": "SSLConnection", "unix": "UnixDomainSocketConnection"}
WHO_AND_WHERE: Final = frozenset(
    (
        "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_keepalive",
        "socket_keepalive_options",
    )
)  # fmt: skip
SLOTS: Final = 16_384
DEFAULT_PORT: Final = 6379
LOOK: Final = ("INFO", "memory")
_OLDER: Final = "driver_info" not in inspect.signature(redis.connection.AbstractConnection.__init__).parameters
UNANNOUNCED: Final[dict[str, None]] = {"lib_name": None, "lib_version": None} if _OLDER else {"driver_info": None}
"""No CLIENT SETINFO: two round trips at each connection, and a right that an ACL would have to grant."""


class Timeouts(NamedTuple):
    """Seconds."""

    answer: float
    connect: float


class Target(NamedTuple):
    """Who is to be asked."""

    kind: str
    """`single`, `sentinel` or `cluster`."""
    transport: str
    options: dict[str, Any]
    hosts: tuple[tuple[str, int], ...] = ()
    """Sentinels, or some nodes of the cluster."""
    service: str = ""
    sentinel_options: dict[str, Any] = {}  # noqa: RUF012 - never written to


def slot_of(subject: bytes) -> int:
    """The cluster slot of `hg1:{...}`."""
    return binascii.crc_hqx(subject[subject.index(b"{") + 1 : -1], 0) % SLOTS


def read_url(url: str) -> Target:
    """A target from any of the URL spellings."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    transport = SCHEMES.get(scheme)
    if transport is None or kind not in ("", "cluster", "sentinel"):
        raise StoreError(f"no Redis store for {parts.scheme!r} URLs")
    options = dict(parse_qsl(parts.query))
    own = {name: options.pop(name) for name in list(options) if name.startswith("sentinel_")}
    login, _, hosts = parts.netloc.rpartition("@")
    plain = {"tcp": "redis", "tls": "rediss", "unix": "unix"}[transport]
    if kind:
        places = tuple(map(_host_and_port, hosts.split(",")))
        service, _, db = parts.path.strip("/").partition("/")
        if kind == "cluster" and (service or db):
            raise StoreError("a cluster URL has no path: a cluster has one database")
        if kind == "sentinel" and not service:
            raise StoreError("a sentinel URL names the service: redis+sentinel://host:26379,other:26379/mymaster")
        hosts = f"{places[0][0]}:{places[0][1]}"
        parts = parts._replace(path=f"/{db}" if db else "")
    try:
        netloc = f"{login}@{hosts}" if login else hosts
        read = redis.connection.parse_url(f"{plain}://{netloc}{parts.path}?{urlencode(options)}")  # type: ignore[no-untyped-call]
    except ValueError as reason:
        raise StoreError(f"cannot read this {parts.scheme} URL: {reason}") from None
    read.pop("connection_class", None)
    strangers = [name for name in read if name not in WHO_AND_WHERE and not name.startswith("ssl_")]
    if strangers:
        raise StoreError(f"a Redis store's URL has no option {', '.join(sorted(strangers))}")
    if not kind:
        return Target("single", transport, read)
    own = {name.removeprefix("sentinel_"): value for name, value in own.items()}
    rest = {name: value for name, value in read.items() if name not in ("host", "port")}
    return Target(kind, transport, rest, places, unquote(service), own)


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        if parts.hostname:
            return parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        pass
    raise StoreError(f"{text!r} is no host and port")


def read_client(client: Any) -> Target:  # noqa: ANN401 - any of redis-py's clients
    """A target from a ready redis-py client, sync or async, plain, sentinel or cluster."""
    manager = getattr(client, "nodes_manager", None)
    if manager is not None:
        options = getattr(manager, "connection_kwargs", None) or client.connection_kwargs
        hosts = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
        transport = "tls" if options.get("ssl") or "SSL" in str(options.get("connection_class")) else "tcp"
        return Target("cluster", transport, _who(options, "host", "port"), hosts)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise StoreError(f"a Redis store is made from a URL or a redis-py client; got {type(client).__name__}")
    name = pool.connection_class.__name__
    transport = "unix" if "Unix" in name else "tls" if "SSL" in name else "tcp"
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is None:
        return Target("single", transport, _who(pool.connection_kwargs))
    reach = [each.connection_pool.connection_kwargs for each in sentinels.sentinels]
    hosts = tuple((each["host"], int(each["port"])) for each in reach)
    own = _who(reach[0], "host", "port")
    return Target("sentinel", transport, _who(pool.connection_kwargs, "host", "port"), hosts, pool.service_name, own)


def _who(options: dict[str, Any], *but: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if (name in WHO_AND_WHERE or name.startswith("ssl_")) and name not in but and value is not None
    }


class Wire:
    """Makes connections to the servers of one target."""

    def __init__(self, target: Target, timeouts: Timeouts) -> None:
        self.target = target
        self.timeouts = timeouts
        self._cluster: redis.RedisCluster | None = None
        self._moved: dict[int, tuple[str, int]] = {}
        """Slots that servers said are elsewhere, since the nodes were found."""
        self._looked = False

    def connect(self, place: tuple[str, int] | None) -> Any:  # noqa: ANN401
        """A connection to a place of the cluster, or to the one server that is meant; connected."""
        if self.target.kind == "sentinel":
            place = self._sentinel(redis.sentinel.Sentinel).discover_master(self.target.service)
        made = getattr(redis.connection, CLASSES[self.target.transport])(
            **self._options(place), socket_timeout=self.timeouts.answer, retry=Retry(NoBackoff(), 0)
        )
        made.connect()
        if self._looks():
            made.send_command(*LOOK)
            with suppress(ResponseError):  # not everybody may ask
                _warn_of_eviction(made.read_response(disable_decoding=True))
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
        await made.connect()
        if self._looks():
            await made.send_command(*LOOK)
            with suppress(ResponseError):
                _warn_of_eviction(await made.read_response(disable_decoding=True))
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
        nodes = self._cluster.nodes_manager.slots_cache.get(slot) if self._cluster else None
        return (nodes[0].host, int(nodes[0].port)) if nodes else None

    def places(self) -> list[tuple[str, int]]:
        """Every node of the cluster that serves slots."""
        slots = self._cluster.nodes_manager.slots_cache if self._cluster else {}
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
    """The error by its own class: older redis-py knows redirections only from its own cluster client."""
    code, _, rest = str(error).partition(" ")
    kind = {"MOVED": MovedError, "ASK": AskError}.get(code) if type(error) is ResponseError else None
    return kind(rest) if kind else error


def _warn_of_eviction(info: object) -> None:
    """A server that evicts any key forgets limits when memory is short: abusers first, since they fill it."""
    policy = info.partition(b"maxmemory_policy:")[2].split(b"\r")[0] if isinstance(info, bytes) else b""
    if policy.startswith(b"allkeys"):
        logging.getLogger("headgate").warning(
            "the server evicts by %s: when its memory is full it forgets limits before their time; "
            "set maxmemory-policy to noeviction or volatile-ttl",
            policy.decode("ascii", "replace"),
        )
