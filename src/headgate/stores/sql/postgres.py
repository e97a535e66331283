"""States in PostgreSQL: one limit for a fleet, exact and atomic, in one round trip for a decision or in two.

`PostgresStore("postgresql://user@db/app")`, or a ready pool of psycopg. A transaction locks the keys of a decision,
reads their rows and the server's clock, runs the steps, writes and commits: by a function of the server where it has
one for the limit, and otherwise with the reference steps here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from headgate.clock import Clock
from headgate.errors import InvalidCall
from headgate.steps import running_loop
from headgate.stores.breaker import Transition
from headgate.stores.contract import Store
from headgate.stores.deadline import Deadline
from headgate.stores.options import Options, read_options
from headgate.stores.sql.base import SqlStore
from headgate.stores.sql.bound import Task
from headgate.stores.sql.conversation import FAILURES, ServerError, Steps, check_idle, converse, converse_async
from headgate.stores.sql.library import AsyncConnectionPool, ConnectionPool, conninfo_to_dict, pq, psycopg
from headgate.stores.sql.pools import Pools, Target
from headgate.stores.sql.statements import MAKE, clearing, sweeping
from headgate.stores.sql.sweeping import Sweeping
from headgate.stores.sql.transaction import AGAIN, NO_FUNCTION, READ_ONLY, Transaction, alone, explained, preparing
from headgate.stores.url import split
from headgate.wording import explained as explained_arguments
from headgate.wording import listed, nearest, shown

EXAMPLE: Final = "postgresql://db/app"
OPTIONS: Final = ("deadline", "connect_timeout", "max_connections", "nodes", "readable_keys")
MOST_TRIES: Final = 4
"""The most times that a decision begins: again only if nothing can have been written."""
GRACE: Final = 0.1
"""Seconds for a server to roll back after an error, so that the connection need not be closed."""
T = TypeVar("T")


class PostgresStore(SqlStore):
    """A store in PostgreSQL, which a fleet shares.

    `deadline` (0.25): seconds a decision may take; later, the limiter's `on_error` answers. `connect_timeout`
    (0.25): seconds to get a connection. `max_connections` (10): the most connections of a process or an event loop.
    `nodes` (1): the number of processes that share a limit while the server is away. `readable_keys` (False): store
    keys as they are instead of their hashes, so that they can be joined with other tables. All of these may be options
    of the URL instead. `local`: the store that answers while the server is away, if `on_error` is `"local"`. `pepper`:
    a secret of the fleet, without which hashes of keys cannot be computed. `on_transition`: called with a `Transition`
    when the server goes away or comes back. `clock`: for tests, in place of the server's clock.
    """

    @explained_arguments
    def __init__(
        self,
        url: str | Any,  # noqa: ANN401 - or one of psycopg's pools
        *,
        deadline: float | None = None,
        connect_timeout: float | None = None,
        max_connections: int | None = None,
        nodes: int | None = None,
        readable_keys: bool | None = None,
        local: Store | str | None = None,
        pepper: bytes = b"",
        on_transition: Callable[[Transition], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = {
            "deadline": deadline, "connect_timeout": connect_timeout, "max_connections": max_connections,
            "nodes": nodes, "readable_keys": readable_keys,
        }  # fmt: skip
        plain, in_url = read_options(url if isinstance(url, str) else EXAMPLE, Options(), OPTIONS, EXAMPLE)
        options = in_url.with_arguments(given)
        target = Target(plain, {}) if isinstance(url, str) else _target_of(url)
        name = _name_of(target, isinstance(url, str))
        self._pools = Pools(name, target, options, None if isinstance(url, str) else url)
        self._sweeping = Sweeping()
        self._has_functions: bool | None = None
        """Whether the server has the functions; None before the table was checked."""
        super().__init__(name, options, local, pepper, on_transition, clock)

    def hang_up(self) -> None:
        """Close the free connections of threads; the table is checked again by the next decision."""
        self._has_functions = None
        self._pools.hang_up()

    def close(self) -> None:
        """Close the connections; permits are not renewed. A store that is used again connects again."""
        super().close()
        self._pools.close()

    async def aclose(self) -> None:
        """Close the connections of threads and of this event loop."""
        await self._pools.aclose()
        await running_loop().run_in_executor(None, self.close)

    def make_table(self) -> str:
        """Make the table, if it is not there; return the name of the server and of the database."""
        self._noting(lambda: self._once(alone(MAKE)))
        self._noting(lambda: self._once(preparing(self.name)))
        return self.name

    def _forget(self) -> None:
        self._pools.forget()

    def _clear(self, namespace: str) -> None:
        self._once(alone(clearing(namespace)))

    def _sweep(self) -> int:
        return self._once(alone(sweeping(self._now_us())))

    def _once(self, steps: Steps[T]) -> T:
        """Run steps outside of a decision; they may take as long as it takes to connect."""
        with self._connected() as connection:
            return converse(connection, steps, time.monotonic() + max(self.options.connect_timeout, 10.0))

    def _run(self, task: Task[T]) -> T:
        due = 0.0
        for tries in range(1, MOST_TRIES + 1):
            transaction = self._transaction(task)
            try:
                with self._connected() as connection:
                    due = due or time.monotonic() + self.options.deadline
                    check_idle(connection)
                    if self._has_functions is None:
                        self._has_functions = converse(connection, preparing(self.name), due)
                    return converse(connection, transaction.steps(self._has_functions), due)
            except (ServerError, *FAILURES) as error:
                again = self._begins_again(transaction, error, due, tries)
                if not again:
                    raise explained(self.name, error) from error
        raise AssertionError  # the last attempt has returned or raised

    async def _run_async(self, task: Task[T]) -> T:
        due, loop = 0.0, running_loop()
        for tries in range(1, MOST_TRIES + 1):
            transaction = self._transaction(task)
            try:
                async with self._connected_async() as connection:
                    due = due or loop.time() + self.options.deadline
                    async with Deadline(due):
                        check_idle(connection)
                        if self._has_functions is None:
                            self._has_functions = await converse_async(connection, preparing(self.name))
                        return await converse_async(connection, transaction.steps(self._has_functions))
            except (ServerError, *FAILURES) as error:
                again = self._begins_again(transaction, error, due, tries)
                if not again:
                    raise explained(self.name, error) from error
                if isinstance(error, ServerError) and error.code == READ_ONLY:
                    await self._pools.hang_up_async()
        raise AssertionError  # the last attempt has returned or raised

    def _transaction(self, task: Task[T]) -> Transaction[T]:
        return Transaction(task, self._now_us(), self.options.deadline, self._sweeping)

    def _begins_again(self, transaction: Transaction[T], error: BaseException, due: float, tries: int) -> bool:
        """Whether nothing can have been written, and another attempt may succeed in the time that is left."""
        if isinstance(error, TimeoutError) or tries == MOST_TRIES or time.monotonic() >= due:
            return False
        if not isinstance(error, ServerError):
            return not transaction.committing  # the server closed an idle connection, or was restarted
        if error.code == READ_ONLY:
            self.hang_up()  # another server may have become the primary
        if error.code == NO_FUNCTION:
            self._has_functions = None
        return error.code in AGAIN or (error.code.startswith("57P") and not transaction.committing)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Lend a connection; one that is not idle afterwards is rolled back, or else closed."""
        pool, connection = self._pools.take()
        try:
            yield connection
            self._pools.answered()
        except ServerError:
            with suppress(*FAILURES, ServerError):
                converse(connection, alone("ROLLBACK"), time.monotonic() + GRACE)
            raise
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.close()  # a reply that arrives later would be read as that of the next query
            pool.putconn(connection)

    @asynccontextmanager
    async def _connected_async(self) -> AsyncIterator[Any]:
        pool, connection = await self._pools.take_async()
        try:
            yield connection
            self._pools.answered()
        except ServerError:
            with suppress(*FAILURES, ServerError):
                async with Deadline(running_loop().time() + GRACE):
                    await converse_async(connection, alone("ROLLBACK"))
            raise
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await connection.close()
            await pool.putconn(connection)


def _target_of(pool: Any) -> Target:  # noqa: ANN401
    if not isinstance(pool, ConnectionPool | AsyncConnectionPool):
        raise InvalidCall(f"a PostgreSQL store is made from a URL or a pool of psycopg; got {type(pool).__name__}")
    if not isinstance(pool.conninfo, str):
        return Target("", {})
    return Target(pool.conninfo, dict(pool.kwargs) if isinstance(pool.kwargs, dict) else {})


def _name_of(target: Target, must_name: bool) -> str:
    """Return the server and the database for messages, or raise an error; neither shows the login."""
    try:
        known = conninfo_to_dict(target.conninfo, **target.arguments)
    except psycopg.Error:
        raise InvalidCall(
            _unknown_option(target.conninfo)
            or f"cannot read the URL of a PostgreSQL store; write {EXAMPLE}, and in a password %23 for #, %3F for ?"
        ) from None
    if must_name and not known.get("dbname"):
        raise InvalidCall(f"the URL of a PostgreSQL store must name a database: write {EXAMPLE}")
    host = known.get("host") or known.get("hostaddr") or "PostgreSQL"
    port = f":{known['port']}" if known.get("port") else ""
    return f"{host}{port}/{known.get('dbname', '')}"


def _unknown_option(url: str) -> str:
    """Return the error of an option that neither a store nor libpq has; nothing if the URL has none."""
    given = parse_qsl(split(url).query)
    if any("@" in text for _, text in given):  # a part of a password, with its host
        return ""
    known = (*OPTIONS, *(option.keyword.decode() for option in pq.Conninfo.get_defaults()))
    for name, _ in given:
        if name not in known:
            near = nearest(name, known)
            instead = f"did you mean {near!r}?" if near else f"use {listed(OPTIONS)}, or an option of libpq"
            return f"a PostgreSQL URL has no option {shown(name)}; {instead}"
    return ""
