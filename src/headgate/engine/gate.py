"""A gate: limits bound to their tables. The twin's core decides; what is not hot is written here, once for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headgate.call import Call, Cost, checked_costs, checked_key, shown
from headgate.engine.choice import Book, Core, Decision, Table
from headgate.engine.modes import MOST_CALLS, PEEK, TAKE
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Given, Limit, as_limits

Instead = Callable[[tuple[Limit, ...], str | tuple[str, ...], tuple[int, ...], int], Decision]
"""Answers limits, keys, costs and mode where the tables cannot."""

MOST_PLANS: Final = 1024
"""Limits chosen per call whose cores are remembered."""


class Gate:
    """`hit`, `peek` and `take_up_to` are the core's own methods."""

    def __init__(
        self,
        book: Book,
        limits: tuple[Limit, ...],
        table_for: Callable[[Limit], Table],
        instead: Instead | None = None,
    ) -> None:
        identities = [limit.identity for limit in limits]
        for limit in limits:
            if identities.count(limit.identity) > 1:
                raise InvalidLimit(
                    f"two limits would share one state ({limit.identity}); name one of them with `as NAME`"
                )
        if not 0 < len(limits) <= MOST_CALLS:
            raise InvalidLimit(f"a limiter has from 1 to {MOST_CALLS} limits; got {len(limits)}")
        self.limits = limits
        self._book = book
        self._table_for = table_for
        self._instead = instead
        self._plans: dict[Given, Core] = {}
        self._core = book.core(self._tables(limits), limits, self._plan, instead)
        self.hit = self._core.hit
        self.peek = self._core.peek
        self.take_up_to = self._core.take_up_to

    def decide(self, *calls: Call, peek: bool = False) -> Decision:
        """Several subjects, one decision: all are charged or none is."""
        if not 0 < len(calls) <= MOST_CALLS:
            raise InvalidCall(f"a decision has from 1 to {MOST_CALLS} calls; got {len(calls)}")
        for call in calls:
            if not isinstance(call, Call):
                raise InvalidCall(f"decide takes Calls, as in decide(Call(limit, key)); got {shown(call)}")
        subjects = {(call.limit.identity, call.key) for call in calls}
        if len(subjects) < len(calls):
            raise InvalidCall("the same limit and key stand twice in one decision; add up their costs in one Call")
        core = self._core_of([call.limit for call in calls])
        return core.run(tuple(call.key for call in calls), tuple(call.cost for call in calls), PEEK if peek else TAKE)

    def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision (or part of it), or units of a key as if charged now."""
        if isinstance(charged, str):
            if n is None:
                raise InvalidCall("refund(key, n) needs to know how many units; refund(decision) knows by itself")
            amounts = checked_costs(self.limits, n)
            self._core.give((checked_key(charged),) * len(amounts), amounts, (None,) * len(amounts))
            return
        if not hasattr(charged, "claim_refund"):
            raise InvalidCall(f"refund takes a Decision or a key; got {shown(charged)}")
        calls = charged.calls
        limits = tuple(call.limit for call in calls)
        wanted = tuple(call.cost for call in calls) if n is None else checked_costs(limits, n)
        core = self._core_of(limits)
        core.give(
            tuple(call.key for call in calls),
            charged.claim_refund(wanted),
            tuple(verdict.mark for verdict in charged.verdicts),
        )

    def reset(self, key: str) -> None:
        """Make the key as new under every limit of this gate."""
        self._core.clear(checked_key(key))

    def _plan(self, limit: Given) -> Core:
        """The core of limits chosen for one call: other numbers for the same states."""
        chosen = tuple(limit) if isinstance(limit, list) else limit
        core = self._plans.get(chosen)
        if core is None:
            limits = as_limits(chosen)
            if [each.identity for each in limits] != [each.identity for each in self.limits]:
                own, other = "; ".join(map(str, self.limits)), "; ".join(map(str, limits))
                raise InvalidLimit(
                    f"limit= changes numbers only; {other} and {own} differ in algorithm, period, name or block, so "
                    "they would not share a state"
                )
            core = self._core_of(limits)
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[chosen] = core
        return core

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
