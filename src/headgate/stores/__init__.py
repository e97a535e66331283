"""The stores, which keep states, and how a URL becomes a store."""

from __future__ import annotations

import re
from os.path import abspath
from typing import TYPE_CHECKING, Final

from headgate.clock import Clock
from headgate.errors import InvalidCall
from headgate.stores.arguments import checked_limits, checked_namespace, checked_on_error
from headgate.stores.contract import AsyncStore, BoundLimits, Costs, Held, Keys, Marks, OnError, Record, Store
from headgate.stores.fallback import share_of
from headgate.stores.gate import HOT_VERBS, Answer, BaseGate, Bound, Gate
from headgate.stores.memory import MemoryStore
from headgate.stores.placed import bind_placed
from headgate.stores.verbs import Carrying
from headgate.wording import shown

__all__ = [
    "HOT_VERBS", "Answer", "AsyncGate", "AsyncStore", "BaseGate", "Bound", "BoundLimits", "Carrying", "Costs", "Gate",
    "Held", "Keys", "Lease", "Marks", "MemoryStore", "OnError", "Record", "Store", "bind_placed", "checked_limits",
    "checked_namespace", "checked_on_error", "open_store", "share_of",
]  # fmt: skip

if TYPE_CHECKING:
    from headgate.stores.gate_async import AsyncGate
    from headgate.stores.leases import Lease
    from headgate.stores.redis import RedisStore as RedisStore
    from headgate.stores.shared import SharedStore as SharedStore
    from headgate.stores.sql.postgres import PostgresStore as PostgresStore
    from headgate.stores.sql.sqlite import SqliteStore as SqliteStore
else:
    _LATER = {
        "AsyncGate": "headgate.stores.gate_async",
        "Lease": "headgate.stores.leases",
        "PostgresStore": "headgate.stores.sql.postgres",
        "RedisStore": "headgate.stores.redis",
        "SharedStore": "headgate.stores.shared",
        "SqliteStore": "headgate.stores.sql.sqlite",
    }
    """Loaded when first asked for: a limiter in memory needs no event loop, no library and no mapped memory."""

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)


_HOST: Final = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


def open_store(store: Store | str | None, clock: Clock | None) -> Store:
    """Return a ready store as it is, or open the one a URL names; each `memory://` opens a new one."""
    if store is None:
        return MemoryStore(clock=clock)
    if not isinstance(store, str):
        if clock is not None:
            raise InvalidCall("a ready store has its own clock; pass the clock to the store instead")
        if not callable(getattr(store, "bind", None)):
            return _open_client(store)
        return store
    from headgate.stores.url import split  # loaded only if a store is a URL

    scheme = split(store).scheme
    if scheme == "memory":
        return _open_memory(store, clock)
    if scheme == "shared":
        return _open_shared(store, clock)
    if scheme.partition("+")[0] in ("redis", "rediss", "unix", "valkey", "valkeys"):
        from headgate.stores.redis import RedisStore  # an extra: redis-py may not be installed

        return RedisStore(store, clock=clock)
    if scheme == "sqlite":
        from headgate.stores.sql.sqlite import SqliteStore  # loads the modules for databases

        return SqliteStore(store, clock=clock)
    if scheme in ("postgresql", "postgres"):
        from headgate.stores.sql.postgres import PostgresStore  # an extra: psycopg may not be installed

        return PostgresStore(store, clock=clock)
    raise InvalidCall(
        f"{_no_store(store)}; write memory://, shared://PATH, sqlite://PATH, postgresql://, redis://, rediss://, "
        "unix://, redis+cluster:// or redis+sentinel://, or valkey in place of redis"
    )


def _no_store(url: str) -> str:
    """Return the problem of a URL that names no store, without its login."""
    scheme, slashes, _ = url.partition("://")
    if slashes:
        return f"no store for {shown(scheme)} URLs"
    _, at, place = url.rpartition("@")
    if _HOST.fullmatch(place):
        return f"{shown(place)} has no scheme: write redis://{'...@' if at else ''}{place}"
    return "no store for a URL without a scheme"


def _open_client(client: object) -> Store:
    libraries = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    if "psycopg_pool" in libraries:
        from headgate.stores.sql.postgres import PostgresStore

        return PostgresStore(client)
    if "redis" not in libraries:
        kind = type(client).__name__  # not the value itself, which may be a URL with a password
        raise InvalidCall(
            "a store is a URL such as memory://, a Store, a redis-py client or a pool of psycopg; got a value of type "
            f"{kind}"
        )
    from headgate.stores.redis import RedisStore

    return RedisStore(client)


def _open_memory(url: str, clock: Clock | None) -> MemoryStore:
    path, numbers = _read_url(url, {"max_keys": 10, "max_bytes": 10}, "memory://?max_keys=100000&max_bytes=16777216")
    if path.strip("/"):
        raise InvalidCall(f"cannot read {shown(url)}: a memory store has no path; write memory://")
    return MemoryStore(**numbers, clock=clock)


def _open_shared(url: str, clock: Clock | None) -> Store:
    from headgate.stores.shared import SharedStore  # loads the modules for mapped memory

    bases = {"max_keys": 10, "max_bytes": 10, "mode": 8}
    path, numbers = _read_url(url, bases, "shared:///dev/shm/api?max_bytes=67108864&mode=0770")
    if len(path) < 2:
        raise InvalidCall(f"cannot read {shown(url)}: a shared store needs a directory; write shared:///dev/shm/api")
    if not path.startswith("/"):  # a process with another working directory would count apart
        raise InvalidCall(f"cannot read {shown(url)}: the path must be absolute; write shared://{abspath(path)}")
    return SharedStore(path, **numbers, clock=clock)


def _read_url(url: str, bases: dict[str, int], example: str) -> tuple[str, dict[str, int]]:
    """Return the path and the options of a URL; each option is a whole number in its base."""
    from urllib.parse import parse_qsl, unquote

    from headgate.stores.url import split

    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.netloc or parts.fragment or not options.keys() <= bases.keys():
        raise InvalidCall(f"cannot read {shown(url)}; write for instance {example}")
    try:
        return unquote(parts.path), {name: int(value, bases[name]) for name, value in options.items()}
    except ValueError:
        raise InvalidCall(f"the options of {shown(url)} must be whole numbers, as in {example}") from None
