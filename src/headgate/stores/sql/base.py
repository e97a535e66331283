"""The parts that both SQL stores have: bound limits, permits, a breaker, and the errors of a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from headgate.clock import Clock, SystemClock
from headgate.engine import TAKE, read_clock
from headgate.errors import StoreError
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.stores.breaker import Breaker, Prober, Transition
from headgate.stores.contract import Store
from headgate.stores.health import Health, HealthReport
from headgate.stores.options import Options, checked_pepper, local_store
from headgate.stores.sql.bound import AsyncBoundLimits, BoundLimits, Space, Task
from headgate.stores.sql.names import Names
from headgate.stores.sql.renewal import PermitRenewal

PROBE: Final = Limit.parse("1000/second")
T = TypeVar("T")


class DatabaseError(StoreError):
    """The database failed, or did not answer in time."""


class BusyError(DatabaseError):
    """Others held these keys, or all connections, for longer than the deadline: the database itself is well."""


class SqlStore:
    """A store in a database. A subclass runs tasks."""

    on_server = True
    """Whether the database is a server, whose time is worth a look."""

    def __init__(
        self,
        name: str,
        options: Options,
        local: Store | str | None,
        pepper: bytes,
        on_transition: Callable[[Transition], None] | None,
        clock: Clock | None,
    ) -> None:
        self.name = name
        """The database in messages: without a login."""
        self.options = options
        self.nodes = options.nodes
        """The number of processes that share a limit while the database is away."""
        self._pepper = checked_pepper(pepper)
        self._clock = clock
        self._waiting_clock = clock or SystemClock()
        self.local = local_store(local, clock)
        """The store that answers while the database is away."""
        self.breaker = Breaker()
        self._health = Health()
        self._prober = Prober(lambda: (self,), self._probe, (StoreError,), on_transition)
        self._renewal = PermitRenewal(self._transact)
        after_fork(self._after_fork)

    @property
    def decides_by_clock(self) -> bool:
        """Whether a clock was given, which only tests do; otherwise the clock of the database decides."""
        return self._clock is not None

    def health(self) -> HealthReport:
        """Return whether the database is there, the number of failures and, of a server, the times of its answers."""
        return self._health.report(not self.breaker.open, self.on_server)

    @property
    def clock(self) -> Clock:
        """The clock for waiting."""
        return self._waiting_clock

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> BoundLimits:
        """Bind limits to their rows under a namespace."""
        return BoundLimits(self._space(namespace), limits)

    def bind_async(self, namespace: str, limits: tuple[Limit, ...]) -> AsyncBoundLimits:
        """Bind limits for event loops."""
        return AsyncBoundLimits(self._space(namespace), limits)

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace."""
        self._renewal.drop_all(namespace)
        self._noting(lambda: self._clear(Names(namespace, self._pepper, False).text))

    def sweep(self) -> int:
        """Delete a batch of expired rows, and return their number. A store does so itself after some of its writes.

        With a clock of a test, a store does not: virtual time may step back to an instant at which a row still counts.
        """
        return self._noting(self._sweep)

    def close(self) -> None:
        """Close the connections; permits are not renewed. A store that is used again connects again."""
        self._renewal.close()
        self._prober.close()
        self.breaker.close()  # no probe is left to close it
        self.hang_up()

    def hang_up(self) -> None:
        """Close free connections: the next task connects again."""
        raise NotImplementedError

    def _run(self, task: Task[T]) -> T:
        """Run a task in one transaction."""
        raise NotImplementedError

    async def _run_async(self, task: Task[T]) -> T:
        raise NotImplementedError

    def _clear(self, namespace: str) -> None:
        raise NotImplementedError

    def _sweep(self) -> int:
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop connections after a fork: they are the parent's."""
        raise NotImplementedError

    def _space(self, namespace: str) -> Space:
        names = Names(namespace, self._pepper, self.options.readable_keys)
        return Space(names, self._renewal, self._transact, self._transact_async)

    def _now_us(self) -> int | None:
        """Return the instant of the clock of a test."""
        return None if self._clock is None else read_clock(self._clock)

    def _transact(self, task: Task[T]) -> T:
        return self._noting(lambda: self._run(task))

    def _noting(self, work: Callable[[], T]) -> T:
        began = self._ready()
        try:
            value = work()
        except DatabaseError as error:
            self._failed(error, began)
            raise
        self._succeeded(began)
        return value

    def _transact_async(self, task: Task[T]) -> Coroutine[Any, Any, T]:
        return self._noting_async(task)

    async def _noting_async(self, task: Task[T]) -> T:
        began = self._ready()
        try:
            value = await self._run_async(task)
        except DatabaseError as error:
            self._failed(error, began)
            raise
        self._succeeded(began)
        return value

    def _ready(self) -> float:
        if self.breaker.open:
            raise StoreError(f"{self.name} is away")
        return time.monotonic()

    def _failed(self, error: DatabaseError, began: float) -> None:
        self._health.failed()
        if not isinstance(error, BusyError):
            self._prober.failed(self, error, began)

    def _succeeded(self, began: float) -> None:
        self._health.took(time.monotonic() - began)
        if self.breaker.troubled:
            self.breaker.succeeded()

    def _probe(self, _: object) -> str:
        """Make a decision as a test: the database must be able to lock, to write and to commit."""
        names = Names("headgate probe", self._pepper, False)
        bound = BoundLimits(Space(names, self._renewal, self._run, self._run_async), (PROBE,))
        bound.run("probe", (1,), TAKE)
        return "a probe passed"

    def _after_fork(self) -> None:
        self._renewal.forget()
        self._prober.forget()
        self.breaker = Breaker()
        self._health = Health()
        self._forget()
