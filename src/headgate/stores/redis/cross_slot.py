"""Decisions whose keys are in several slots of a cluster, so that no single server can decide."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.engine import PEEK, TAKE, Decision
from headgate.stores.contract import Keys
from headgate.stores.redis.compiled import Command, instant
from headgate.stores.redis.connect import FAILURES
from headgate.wording import log_of

if TYPE_CHECKING:
    from headgate.stores.redis.bound import BoundSteps

T = TypeVar("T")
Steps = Generator[Command, tuple[Any, int], T]
"""A generator that yields commands, is sent each reply and the index in it, or thrown the failure; returns a result."""

log = log_of("headgate")


def decide_cross_slot(
    asker: BoundSteps, slots: list[list[int]], keys: Keys, costs: tuple[int, ...], mode: int
) -> Steps[Decision]:
    """Decide slot by slot, and give back the charges if a later slot refuses."""
    parts = [_Part(asker, keys, costs, tuple(indices)) for indices in slots]
    taken: list[_Part] = []
    refused = False
    try:
        for part in parts:
            yield from part.ask(PEEK if refused or mode == PEEK else TAKE)
            if refused and not part.allowed and part.blocks and mode != PEEK:
                yield from part.ask(TAKE)  # a refusal starts a block
            refused = refused or not part.allowed
            if part.charged:
                taken.append(part)
    except BaseException:
        for part in taken:
            yield from part.undo()
        raise
    if not all(part.allowed for part in parts):
        for part in taken:
            yield from part.undo()
        for part in parts:
            if part.allowed:  # its state without the charge
                yield from part.ask(PEEK, free=True)
    answers = [0] * (6 * len(costs))
    for part in parts:
        for index, row in zip(part.indices, part.answers, strict=True):
            answers[index * 6 : index * 6 + 6] = row
    return Decision(asker.limits, keys, costs, answers, charged=mode != PEEK)


class _Part:
    """The calls of a decision whose keys are in one slot."""

    def __init__(self, asker: BoundSteps, keys: Keys, costs: tuple[int, ...], indices: tuple[int, ...]) -> None:
        self._asker = asker
        self.indices = indices
        self._compiled = asker.part(indices)
        self._keys = tuple(keys[at] for at in indices)
        self._costs = tuple(costs[at] for at in indices)
        self._granted_us = 0
        self.allowed = self.charged = False
        self.blocks = any(limit.block_us for limit in self._compiled.limits)
        self.answers: list[tuple[int, ...]] = []

    def ask(self, mode: int, free: bool = False) -> Steps[None]:
        costs = (0,) * len(self._costs) if free else self._costs
        reply, index = yield self._asker.command(self._compiled, mode, self._keys, self._compiled.argument(costs))
        decision = self._compiled.read(reply, index, self._keys, costs, mode)
        self.allowed = decision.allowed
        self.charged = decision.allowed and mode == TAKE
        self._granted_us = instant(reply)
        self._marks = tuple(verdict.mark for verdict in decision.verdicts)
        self.answers = [(*verdict[:4], *verdict.mark) for verdict in decision.verdicts]

    def undo(self) -> Steps[None]:
        """Give back as of the instant of the grant, so that overlapping decisions cannot exceed the limits."""
        marks = [
            limit.step.at_grant(mark, self._granted_us)
            for limit, mark in zip(self._compiled.limits, self._marks, strict=True)
        ]
        try:
            yield from self._asker.giving_back(self._keys, self._costs, tuple(marks), self.indices)
        except FAILURES as error:
            log.warning("a charge could not be given back and stays: %s", error)
