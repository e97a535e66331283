"""The URL of a Redis store, or a ready redis-py client: the address and the login of a server, and numeric options."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from headgate.errors import InvalidCall
from headgate.stores.options import YES, Options
from headgate.stores.url import split
from headgate.wording import listed, shown, suggestion

SCHEMES: Final = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
WHO_AND_WHERE: Final = frozenset(
    (
        "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_keepalive",
        "socket_keepalive_options",
    )
)  # fmt: skip
OPTIONS: Final = ("deadline", "connect_timeout", "remember_refusals", "nodes")
DEFAULTS: Final = Options(deadline=0.05)
EXAMPLE: Final = "redis://cache:6379"
DEFAULT_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
IN_QUERY: Final = ("db", "username", "password", "client_name", "socket_keepalive")
TRUE_OR_FALSE: Final = ("socket_keepalive", "ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled")


class RedisUrl(NamedTuple):
    """The address and the login of a server, of sentinels or of a cluster."""

    kind: str
    """`single`, `sentinel` or `cluster`."""
    transport: str
    options: dict[str, Any]
    hosts: tuple[tuple[str, int], ...] = ()
    """Sentinels, or some nodes of the cluster."""
    service: str = ""
    sentinel_options: dict[str, Any] = {}  # noqa: RUF012 - never written to

    def __repr__(self) -> str:
        """Leave out the options, which may have a password."""
        return f"RedisUrl({self.kind!r}, {self.transport!r})"


def read_url(url: str) -> RedisUrl:
    """Read any kind of Redis URL. An error does not show the URL, which may have a password."""
    parts = split(url)
    scheme, _, kind = parts.scheme.partition("+")
    transport = SCHEMES.get(scheme)
    if transport is None or kind not in ("", "cluster", "sentinel") or (kind and transport == "unix"):
        named = shown(parts.scheme) if "://" in url else "these"  # before a colon there may be a login
        raise InvalidCall(f"no Redis store for {named} URLs")
    if parts.fragment or "@" in parts.path:
        raise InvalidCall("a password in a URL must be escaped: write %23 for #, %2F for / and %40 for @")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = _sentinel_options(options)
    strangers = [name for name in options if name not in IN_QUERY and not (name[:4] == "ssl_" and transport == "tls")]
    strangers += [f"sentinel_{name}" for name in own if kind != "sentinel" or name not in ("username", "password")]
    if strangers:
        hint = f"{listed(sorted(strangers))}; {suggestion(strangers[0], (*OPTIONS, *IN_QUERY))}"
        raise InvalidCall(f"the URL of a {kind or transport} Redis store has no option {hint}")
    login, _, hosts = parts.netloc.rpartition("@")
    addresses = tuple(map(_host_and_port, hosts.split(","))) if kind or hosts else ()
    if not kind and len(addresses) > 1:
        raise InvalidCall("a redis:// URL has one host; for several, write redis+cluster:// or redis+sentinel://")
    service, path = "", parts.path
    if kind == "sentinel":
        service, _, path = parts.path.strip("/").partition("/")
        if not service:
            raise InvalidCall("a sentinel URL must name the service: redis+sentinel://host:26379,other:26379/mymaster")
    if transport != "unix" and path.strip("/"):
        if kind == "cluster" or not path.strip("/").isdigit():
            raise InvalidCall("the path of a Redis URL must be the number of a database; a cluster has only one")
        options.setdefault("db", path.strip("/"))
    _check_target(transport, kind, hosts, path, options)
    read = _read_options(login, options)
    if kind:
        known = tuple((host, port or (SENTINEL_PORT if service else DEFAULT_PORT)) for host, port in addresses)
        return RedisUrl(kind, transport, read, known, unquote(service), own)
    if transport == "unix":
        read["path"] = unquote(path)
    elif addresses:
        read |= {"host": addresses[0][0]} | ({"port": addresses[0][1]} if addresses[0][1] else {})
    return RedisUrl("single", transport, read)


def _check_target(transport: str, kind: str, hosts: str, path: str, options: dict[str, str]) -> None:
    if transport == "unix" and (hosts or len(path) < 2):
        raise InvalidCall("a unix URL must be the path of a socket: unix:///run/valkey.sock")
    if kind == "cluster" and "db" in options:
        raise InvalidCall("a cluster has only one database; leave out db")


def _sentinel_options(options: dict[str, str]) -> dict[str, str]:
    """Take the options for the sentinels themselves out of the others."""
    names = [name for name in options if name.startswith("sentinel_")]
    return {name.removeprefix("sentinel_"): options.pop(name) for name in names}


def _read_options(login: str, options: dict[str, str]) -> dict[str, Any]:
    """Return the login and the options."""
    username, _, password = login.partition(":")
    read: dict[str, Any] = {"username": unquote(username), "password": unquote(password)}
    read = {name: value for name, value in read.items() if value}
    for name, value in options.items():
        if name == "db" and not value.isdigit():
            raise InvalidCall("db in a Redis URL must be the number of a database")
        read[name] = int(value) if name == "db" else value.lower() in YES if name in TRUE_OR_FALSE else value
    return read


def _host_and_port(text: str) -> tuple[str, int | None]:
    parts = split(f"//{text}")
    with suppress(ValueError):
        if parts.hostname:
            return parts.hostname, parts.port
    raise InvalidCall("a Redis URL needs a host, and a port that is a number up to 65535")


def read_client(client: Any) -> RedisUrl:  # noqa: ANN401 - any of redis-py's clients
    """Return a `RedisUrl` from a ready redis-py client, sync or async, plain, sentinel or cluster."""
    pooled = getattr(getattr(client, "connection_pool", None), "connection_class", object)  # also in a plain client
    if any(kind.__module__.partition(".")[0] == "fakeredis" for kind in (*type(client).__mro__, *pooled.__mro__)):
        raise InvalidCall("fakeredis has no server that a store could ask: use memory://, or a real server")
    manager = getattr(client, "nodes_manager", None)
    if manager is not None:
        options = getattr(manager, "connection_kwargs", None) or client.connection_kwargs
        hosts = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
        transport = "tls" if options.get("ssl") or "SSL" in str(options.get("connection_class")) else "tcp"
        return RedisUrl("cluster", transport, _who(options, "host", "port"), hosts)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise InvalidCall(f"a Redis store is made from a URL or a redis-py client; got {type(client).__name__}")
    name = pool.connection_class.__name__
    transport = "unix" if "Unix" in name else "tls" if "SSL" in name else "tcp"
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is None:
        return RedisUrl("single", transport, _who(pool.connection_kwargs))
    reach = [each.connection_pool.connection_kwargs for each in sentinels.sentinels]
    hosts = tuple((each["host"], int(each["port"])) for each in reach)
    own = _who(reach[0], "host", "port")
    return RedisUrl("sentinel", transport, _who(pool.connection_kwargs, "host", "port"), hosts, pool.service_name, own)


def _who(options: dict[str, Any], *but: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if (name in WHO_AND_WHERE or name.startswith("ssl_")) and name not in but and value is not None
    }
