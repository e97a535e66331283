"""A gate: limits bound to their tables in one namespace. The twin's `Core` decides; what is not hot is written here once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headgate.call import Call, Cost, checked_costs, checked_key, shown
from headgate.engine.choice import Book, Core, Decision, Lane, Table
from headgate.engine.modes import MOST_CALLS, PEEK, TAKE
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Given, Limit, as_limits

MOST_PLANS: Final = 1024
"""Limits chosen per call whose lanes are remembered."""


class Gate(Core):
    """`hit`, `peek` and `take_up_to` are the twin's own methods."""

    def __init__(self, book: Book, limits: tuple[Limit, ...], table_for: Callable[[Limit], Table]) -> None:
        identities = [limit.identity for limit in limits]
        for limit in limits:
            if identities.count(limit.identity) > 1:
                raise InvalidLimit(f"two limits would share one state ({limit.identity}); name one of them with `as NAME`")
        if not 0 < len(limits) <= MOST_CALLS:
            raise InvalidLimit(f"a limiter has from 1 to {MOST_CALLS} limits; got {len(limits)}")
        self._table_for = table_for
        self._plans: dict[Given, Core] = {}
        super().__init__(book, self._lanes(limits))

    def plan(self, limit: Given) -> Core:
        """The lanes of limits chosen for one call: other numbers for the same states."""
        chosen = tuple(limit) if isinstance(limit, list) else limit
        core = self._plans.get(chosen)
        if core is None:
            limits = as_limits(chosen)
            if [each.identity for each in limits] != [each.identity for each in self.limits]:
                raise InvalidLimit(
                    f"limit= changes numbers only; {'; '.join(map(str, limits))} and {'; '.join(map(str, self.limits))} "
                    "differ in algorithm, period, name or block, so they would not share a state"
                )
            core = Core(self.book, self._lanes(limits))
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[chosen] = core
        return core

    def decide(self, *calls: Call, peek: bool = False) -> Decision:
        """Several subjects, one decision: all are charged or none is."""
        if not 0 < len(calls) <= MOST_CALLS:
            raise InvalidCall(f"a decision has from 1 to {MOST_CALLS} calls; got {len(calls)}")
        for call in calls:
            if not isinstance(call, Call):
                raise InvalidCall(f"decide takes Calls, as in decide(Call(limit, key)); got {shown(call)}")
        subjects = [(call.limit.identity, call.key) for call in calls]
        if len(set(subjects)) < len(subjects):
            raise InvalidCall("the same limit and key stand twice in one decision; add up their costs in one Call")
        core = Core(self.book, self._lanes(call.limit for call in calls))
        keys = tuple(call.key for call in calls)
        return core.run(keys, tuple(call.cost for call in calls), PEEK if peek else TAKE)

    def refund(self, charged: Decision | str, amount: Cost | None = None) -> None:
        """Give back a decision (or part of it), or units of a key as if charged now."""
        if isinstance(charged, str):
            if amount is None:
                raise InvalidCall("refund(key, n) needs to know how many units; refund(decision) knows by itself")
            key = checked_key(charged)
            amounts = checked_costs(self.limits, amount)
            self.give((key,) * len(amounts), amounts, (None,) * len(amounts))
            return
        if not isinstance(charged, Decision):
            raise InvalidCall(f"refund takes a Decision or a key; got {shown(charged)}")
        calls = charged.calls
        limits = tuple(call.limit for call in calls)
        wanted = tuple(call.cost for call in calls) if amount is None else checked_costs(limits, amount)
        Core(self.book, self._lanes(limits)).give(
            tuple(call.key for call in calls),
            charged.claim_refund(wanted),
            tuple(verdict.mark for verdict in charged.verdicts),
        )

    def reset(self, key: str) -> None:
        """Make the key as new under every limit of this gate."""
        self.clear(checked_key(key))

    def _lanes(self, limits: Iterable[Limit]) -> tuple[Lane, ...]:
        return tuple(self._lane(limit) for limit in limits)

    def _lane(self, limit: Limit) -> Lane:
        table = self._table_for(limit)
        if limit.step.words(limit.params) > table.words:
            raise InvalidLimit(
                f"{limit}: the states of {limit.identity} were made for a smaller limit; give the limiter its largest plan "
                "and choose smaller ones per call"
            )
        return Lane(table, limit)
