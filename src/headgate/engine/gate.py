"""A gate: limits bound to their tables. The twin's core decides; what is not hot is written here, once for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headgate.call import Call, Cost, checked_key
from headgate.engine.asking import Plans, checked_calls, checked_limits, checked_refund
from headgate.engine.choice import Book, Core, Decision, Table
from headgate.engine.modes import PEEK, RESERVE, TAKE
from headgate.errors import InvalidLimit
from headgate.limit import Given, Limit

Instead = Callable[[tuple[Limit, ...], str | tuple[str, ...], tuple[int, ...], int, int], Decision]
"""Answers limits, keys, costs, mode and wait where the tables cannot."""


class Acquire(Protocol):
    """A question that may take time."""

    def __call__(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """The answer."""
        ...


class Gate:
    """`hit`, `peek` and `take_up_to` are the core's own methods."""

    def __init__(
        self,
        book: Book,
        limits: tuple[Limit, ...],
        table_for: Callable[[Limit], Table],
        instead: Instead | None = None,
    ) -> None:
        self.limits = checked_limits(limits)
        self._book = book
        self._table_for = table_for
        self._instead = instead
        self._core = book.core(self._tables(limits), limits, Plans(limits, self._core_of).find, instead)
        self.hit = self._core.hit
        self.peek = self._core.peek
        self.take_up_to = self._core.take_up_to
        self.reserve = self._core.reserve

    def acquiring(
        self, places: dict[str, Any], waiter: Callable[[str, Cost, float | None, Given | None], Decision]
    ) -> Acquire:
        """The core's own `acquire`, which turns to the waiter when somebody stands in line or the answer is no."""
        self._core.wait_by(places, waiter)
        return self._core.acquire

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[str | tuple[str, ...], tuple[int, ...]], Decision]:
        """`decide` over these limits again and again: keys (or one for all) and costs, checked already."""
        return self._core_of(checked_limits(limits)).run

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is; with a wait also for later."""
        limits, keys, costs = checked_calls(calls)
        return self._core_of(limits).run(keys, costs, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back a decision (or part of it), or units of a key as if charged now."""
        limits, keys, units, marks = checked_refund(self.limits, charged, n)
        core = self._core if limits is self.limits else self._core_of(limits)
        core.give(keys, units, marks)

    def reset(self, key: str) -> None:
        """Make the key as new under every limit of this gate."""
        self._core.clear(checked_key(key))

    def _core_of(self, limits: Sequence[Limit]) -> Core:
        return self._book.core(self._tables(limits), limits, None, self._instead)

    def _tables(self, limits: Sequence[Limit]) -> list[Table]:
        tables = [self._table_for(limit) for limit in limits]
        for table, limit in zip(tables, limits, strict=True):
            if limit.step.words(limit.params) > table.words:
                raise InvalidLimit(
                    f"{limit}: the states of {limit.identity} were made for a smaller limit; give the limiter "
                    "its largest plan (a shared store has to be removed first) and choose smaller ones per call"
                )
        return tables
