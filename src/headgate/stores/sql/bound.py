"""Limits bound to rows: each method is one piece of work over the rows of its keys, which a database runs atomically.

The work is a function of rows and of an instant. It has no effect but its result, so that a transaction that failed
before its commit can run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from headgate.engine import PEEK, TAKE, Decision, give_back, recorded_in, settle
from headgate.limit import Limit
from headgate.stores.contract import Costs, Held, Keys, Marks, Record
from headgate.stores.renewal import BaseRenewal
from headgate.stores.sql.functions import FunctionCall, function_for
from headgate.stores.sql.names import Name, Names
from headgate.stores.sql.rows import Row, Stored, read, write

T = TypeVar("T")


class Changes(NamedTuple):
    """The changes that a piece of work leaves behind."""

    rows: Sequence[Row] = ()
    gone: Sequence[Name] = ()


NOTHING = Changes()
Work = Callable[[Sequence[Stored | None], int], tuple[T, Changes]]


class Remote(NamedTuple, Generic[T]):
    """A call of a function of the server, and how its answer is read."""

    function: FunctionCall
    cost: int
    read: Callable[[list[int]], T]


class Task(NamedTuple, Generic[T]):
    """Work over some rows."""

    names: Sequence[Name]
    locks: Sequence[int]
    """The numbers of the keys to lock; none if the work only reads."""
    work: Work[T]
    remote: Remote[T] | None = None
    """The same work for a server that has a function for it."""


class Space(NamedTuple):
    """The objects that the bound limits of one namespace share."""

    names: Names
    renewal: BaseRenewal
    transact: Callable[[Task[Any]], Any]
    """Runs a task in this thread."""
    transact_async: Callable[[Task[Any]], Any]
    """Runs a task for an event loop."""


class BoundTasks:
    """The tasks of bound limits."""

    def __init__(self, space: Space, limits: tuple[Limit, ...]) -> None:
        self.limits = limits
        self._space = space
        self._in_flight = tuple(at for at, limit in enumerate(limits) if limit.in_flight)
        self._function = function_for(limits[0]) if len(limits) == 1 else None

    def deciding(self, keys: Keys, costs: Costs, mode: int, wait: int) -> Task[Decision]:
        """Ask every limit, then charge all or none."""
        names, locks = self._space.names.rows(self.limits, keys)

        def work(stored: Sequence[Stored | None], now: int) -> tuple[Decision, Changes]:
            found = [read(limit, row, now) for limit, row in zip(self.limits, stored, strict=True)]
            cells = [each.cell for each in found]
            before = [each and (list(each.state), each.until) for each in cells]
            decision = settle(self.limits, cells, keys, costs, mode, wait, now)
            if mode == PEEK:
                return decision, NOTHING
            rows = [
                write(name, limit, cell, leases.leases, now)
                for name, limit, cell, leases, was in zip(names, self.limits, cells, found, before, strict=True)
                if cell is not None and (cell.state, cell.until) != was
            ]
            return decision, Changes(rows) if rows else NOTHING

        return Task(names, () if mode == PEEK else locks, work, self._calling(keys, costs) if mode == TAKE else None)

    def _calling(self, keys: Keys, costs: Costs) -> Remote[Decision] | None:
        """Ask one limit by a function of the server, if there is one."""
        if self._function is None:
            return None
        return Remote(
            self._function, costs[0], lambda answers: Decision(self.limits, keys, costs, answers, charged=True)
        )

    def giving(self, keys: Keys, units: Costs, marks: Marks) -> Task[None] | None:
        """Give back units; None if nothing is left to give."""
        space, each = self._space, (keys,) * len(self.limits) if isinstance(keys, str) else keys
        units = tuple(
            space.renewal.drop(space.names, limit, key, mark, count) if limit.in_flight else count
            for limit, key, mark, count in zip(self.limits, each, marks, units, strict=True)
        )
        if not any(units):
            return None
        names, locks = space.names.rows(self.limits, each)

        def work(stored: Sequence[Stored | None], now: int) -> tuple[None, Changes]:
            found = [read(limit, row, now) for limit, row in zip(self.limits, stored, strict=True)]
            before = [row.cell and list(row.cell.state) for row in found]
            give_back(self.limits, [row.cell for row in found], units, marks, now)
            rows = [
                write(name, limit, row.cell, row.leases, now)
                for name, limit, row, was in zip(names, self.limits, found, before, strict=True)
                if row.cell is not None and row.cell.state != was
            ]
            return None, Changes(rows)

        return Task(names, locks, work)

    def clearing(self, key: str) -> Task[None]:
        """Forget a key."""
        if self._in_flight:
            self._space.renewal.drop_key(self._space.names, self.limits, key)
        names, locks = self._space.names.rows(self.limits, key)
        return Task(names, locks, lambda stored, now: (None, Changes(gone=names if any(stored) else ())))

    def listing(self, key: str) -> Task[list[Held]]:
        """List the permits of a key."""
        names, _ = self._space.names.rows(self.limits, key)

        def work(stored: Sequence[Stored | None], now: int) -> tuple[list[Held], Changes]:
            held: list[Held] = []
            for at in self._in_flight:
                cell = read(self.limits[at], stored[at], now).cell
                own = set(self._space.renewal.marks(self._space.names, self.limits[at], key))
                numbers = cell.state if cell is not None else []
                for since, number, units in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
                    held.append((at, max(0, now - since), units, (since, number) in own))
            return held, NOTHING

        return Task(names, (), work)

    def recording(self, key: str) -> Task[list[Record]]:
        """Read the record of a key under each limit."""
        names, _ = self._space.names.rows(self.limits, key)

        def work(stored: Sequence[Stored | None], now: int) -> tuple[list[Record], Changes]:
            cells = [read(limit, row, now).cell for limit, row in zip(self.limits, stored, strict=True)]
            return recorded_in(self.limits, cells, now), NOTHING

        return Task(names, (), work)

    def hold(self, decision: Decision, mode: int) -> Decision:
        """Renew the permits of a decision until they are given back."""
        if self._in_flight and decision.allowed and mode != PEEK:
            calls, verdicts = decision.calls, decision.verdicts
            for at in self._in_flight:
                call = calls[at]
                if call.cost:
                    self._space.renewal.hold(self._space.names, call.limit, call.key, verdicts[at].mark, call.cost)
        return decision


class BoundLimits(BoundTasks):
    """Bound limits for threads."""

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Ask every limit in one step, then charge all or none."""
        return self.hold(self._space.transact(self.deciding(keys, costs, mode, wait)), mode)

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units that were charged at these marks."""
        task = self.giving(keys, units, marks)
        if task is not None:
            self._space.transact(task)

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        self._space.transact(self.clearing(key))

    def holders(self, key: str) -> list[Held]:
        """Return the permits in flight of a key."""
        held: list[Held] = self._space.transact(self.listing(key))
        return held

    def records(self, key: str) -> list[Record]:
        """Return the record of a key under each limit."""
        records: list[Record] = self._space.transact(self.recording(key))
        return records


class AsyncBoundLimits(BoundTasks):
    """Bound limits for event loops."""

    async def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Ask every limit in one step, then charge all or none."""
        return self.hold(await self._space.transact_async(self.deciding(keys, costs, mode, wait)), mode)

    async def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units that were charged at these marks."""
        task = self.giving(keys, units, marks)
        if task is not None:
            await self._space.transact_async(task)

    async def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        await self._space.transact_async(self.clearing(key))

    async def holders(self, key: str) -> list[Held]:
        """Return the permits in flight of a key."""
        held: list[Held] = await self._space.transact_async(self.listing(key))
        return held

    async def records(self, key: str) -> list[Record]:
        """Return the record of a key under each limit."""
        records: list[Record] = await self._space.transact_async(self.recording(key))
        return records
