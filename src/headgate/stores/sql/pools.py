"""The connections of a PostgreSQL store: a pool for threads, and one for each event loop; or a ready pool."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any, Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.steps import running_loop
from headgate.stores.options import Options
from headgate.stores.sql.base import BusyError, DatabaseError
from headgate.stores.sql.library import AsyncConnectionPool, ConnectionPool, conninfo_to_dict, psycopg

GIVE_UP: Final = 1.0
"""Seconds for which a pool tries to make a connection that was asked for; then the next caller asks again."""


CROWDED: Final = "the server has no free connections: lower max_connections, or use PgBouncer"
CROWDED_WORDS: Final = ("too many connections", "too many clients", "connection slots")
"""What servers say; psycopg does not tell the SQLSTATE of a connection that was refused."""


class Target(NamedTuple):
    """The server, as psycopg takes it."""

    conninfo: str
    arguments: dict[str, Any]


class Lent(NamedTuple):
    """A connection, and the pool that it goes back to."""

    pool: Any
    connection: Any


class Pools:
    """Makes pools when they are first needed, so that no connection or thread is there before."""

    def __init__(self, name: str, target: Target, options: Options, ready: Any = None) -> None:  # noqa: ANN401
        self._name, self._target, self._options, self._ready = name, target, options, ready
        self._failure: BaseException | None = None
        """Why the last connection could not be made: a pool tells only that time is over."""
        self._answered = 0.0
        """When the server has last answered: a pool whose connections are all busy is no sign that it is away."""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._of_threads: ConnectionPool[Any] | None = None
        self._of_loops: dict[int, tuple[asyncio.AbstractEventLoop, Any]] = {}

    def take(self) -> Lent:
        """Return a connection for this thread."""
        pool, began = self._pool(), time.monotonic()
        try:
            return Lent(pool, pool.getconn(self._options.connect_timeout))
        except (psycopg.Error, OSError) as error:
            raise self._explained(error, began) from error

    async def take_async(self) -> Lent:
        """Return a connection for the running event loop."""
        pool, began = await self._pool_of_loop(), time.monotonic()
        try:
            return Lent(pool, await pool.getconn(self._options.connect_timeout))
        except (psycopg.Error, OSError) as error:
            raise self._explained(error, began) from error

    def answered(self) -> None:
        """Note that the server has answered on a connection."""
        self._answered = time.monotonic()

    def hang_up(self) -> None:
        """Close the free connections of threads: the next caller connects again. A ready pool is its owner's."""
        if self._of_threads is not None:
            self._of_threads.drain()

    async def hang_up_async(self) -> None:
        """Close the free connections of this event loop."""
        _, pool = self._of_loops.get(id(running_loop()), (None, None))
        if pool is not None:
            await pool.drain()

    def close(self) -> None:
        """Close the connections of threads, and end the threads of their pool."""
        with self._lock:
            pool, self._of_threads = self._of_threads, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        _, pool = self._of_loops.pop(id(running_loop()), (None, None))
        if pool is not None:
            await pool.close()

    def forget(self) -> None:
        """Start again after a fork; a ready pool is the parent's."""
        self._abandoned = (self._of_threads, self._of_loops, self._ready)  # kept: closing them would end sessions
        self._ready = None
        self._begin()

    def _pool(self) -> ConnectionPool[Any]:
        if isinstance(self._ready, ConnectionPool):
            return self._ready
        if self._ready is not None:
            raise InvalidCall("an AsyncConnectionPool serves event loops only; give a URL, or a ConnectionPool")
        pool = self._of_threads
        if pool is None:
            with self._lock:
                pool = self._of_threads
                if pool is None:
                    pool = ConnectionPool(connection_class=self._noting(psycopg.Connection), **self._settings())
                    pool.open()
                    self._of_threads = pool
        return pool

    async def _pool_of_loop(self) -> Any:  # noqa: ANN401
        if isinstance(self._ready, AsyncConnectionPool):
            return self._ready
        if self._ready is not None:
            raise InvalidCall("a ConnectionPool serves threads only; give a URL, or an AsyncConnectionPool")
        loop = running_loop()
        of, pool = self._of_loops.get(id(loop), (None, None))
        if of is not loop or pool is None:
            self._of_loops = {key: each for key, each in self._of_loops.items() if not each[0].is_closed()}
            pool = AsyncConnectionPool(connection_class=self._noting(psycopg.AsyncConnection), **self._settings())
            self._of_loops[id(loop)] = (loop, pool)
            await pool.open()
        return pool

    def _settings(self) -> dict[str, Any]:
        # A statement that is prepared belongs to a session, which a proxy gives to others between transactions.
        arguments = {"autocommit": True, "prepare_threshold": None, **self._target.arguments}
        if "connect_timeout" not in conninfo_to_dict(self._target.conninfo, **self._target.arguments):
            # A pool makes one connection at a time: without a time of its own, one that hears nothing holds up all
            # others for two minutes. psycopg takes whole seconds, two at the least.
            arguments["connect_timeout"] = math.ceil(self._options.connect_timeout)
        return {
            "conninfo": self._target.conninfo, "kwargs": arguments, "min_size": 0, "open": False, "name": "headgate",
            "max_size": self._options.max_connections, "timeout": self._options.connect_timeout,
            "reconnect_timeout": GIVE_UP,
        }  # fmt: skip

    def _noting(self, kind: Any) -> Any:  # noqa: ANN401
        """Return this class of connections; its failures to connect are noted."""
        pools = self

        if kind is psycopg.Connection:

            class Noting(kind):  # type: ignore[misc]
                @classmethod
                def connect(cls, *where: Any, **how: Any) -> Any:  # noqa: ANN401
                    try:
                        return super().connect(*where, **how)
                    except psycopg.Error as error:
                        pools._failure = error
                        raise
        else:

            class Noting(kind):  # type: ignore[misc,no-redef]
                @classmethod
                async def connect(cls, *where: Any, **how: Any) -> Any:  # noqa: ANN401
                    try:
                        return await super().connect(*where, **how)
                    except psycopg.Error as error:
                        pools._failure = error
                        raise

        return Noting

    def _explained(self, error: BaseException, began: float) -> DatabaseError:
        reason, self._failure = self._failure, None
        if reason is None and self._answered > began:
            return BusyError(f"{self._name}: other decisions kept all connections busy; raise max_connections")
        if reason is None:
            return DatabaseError(f"{self._name}: no connection was free in time: {error}")
        said = " ".join(str(reason).split())
        remedy = CROWDED if any(words in said for words in CROWDED_WORDS) else "cannot connect"
        return DatabaseError(f"{self._name}: {remedy}: {said}")
