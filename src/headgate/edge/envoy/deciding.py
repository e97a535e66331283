"""Decide over the descriptors of one request: every limit is charged, or none is.

Hits that a request brings (`hits_addend`) are the exception: they are charged as far as they fit, also if the request
is refused. Envoy tells the use of a finished response so (`apply_on_stream_done`), drops the answer, and marks such a
call by nothing else. If hits that do not fit were charged nowhere, a limit of tokens would never be used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.algorithms import Verdict
from headgate.caches import ClearedWhenFull
from headgate.call import Call
from headgate.decision import Decision
from headgate.edge.envoy.rules import Rule
from headgate.layout import MOST_CALLS
from headgate.limit import Limit
from headgate.stores import AsyncGate, Store

MOST_GATES: Final = 1024
"""The most limits whose gates are kept: requests may bring limits of their own."""


Told = Verdict | Decision | None
"""The answer of one limit; a decision over one call has the fields of its verdict."""


class Question(NamedTuple):
    """A descriptor of a request for which there is a rule that can refuse."""

    place: int
    """The place of the descriptor in the request."""
    rule: Rule
    key: str
    hits: int
    """0 only asks; a negative number gives back."""
    brought: bool
    """Whether the request brings the hits; the one hit of other requests is charged to all limits or to none."""


class Gates(ClearedWhenFull[Limit, AsyncGate]):
    """The gate of each limit on a store."""

    def __init__(self, store: Store, namespace: str) -> None:
        super().__init__(MOST_GATES, lambda limit: AsyncGate(store, namespace, (limit,)))


class Deciding:
    """The decision over one request."""

    def __init__(self, gates: Gates, questions: Sequence[Question]) -> None:
        self._gates = gates
        self._questions = questions
        self._charged: list[tuple[AsyncGate, Decision]] = []
        self.verdicts: dict[int, Told] = {}
        """By the place of the descriptor; None for 0 requests per unit, which has no verdict."""

    async def run(self) -> bool:
        """Return whether the request is allowed, and fill in the verdicts."""
        if await self._binding() and await self._quotas():
            for question in self._questions:
                if question.place not in self.verdicts:
                    self.verdicts[question.place] = await self._alone(question)
            return True
        for gate, decision in self._charged:
            await gate.refund(decision)
        for question in self._questions:
            asked = question.place in self.verdicts
            if question.brought and question.hits and not (asked and question.rule.quota):
                self.verdicts[question.place] = await self._alone(question)
            elif not asked:
                self.verdicts[question.place] = await self._peek(question)
        return False

    async def _binding(self) -> bool:
        """Charge the limits that can refuse alone; after a refusal, `verdicts` has those that were asked."""
        binding = [
            question
            for question in self._questions
            if not question.rule.shadow and not question.rule.quota and question.hits >= 0
        ]
        for question in binding:
            if question.hits == 0 or question.rule.limit is None:
                verdict = self.verdicts[question.place] = await self._peek(question)
                if not _allows(verdict):
                    return False
        found: dict[int, Told] = {}
        for questions in _decisions([question for question in binding if question.hits]):
            calls = [Call(question.rule.limit, question.key, question.hits) for question in questions]  # type: ignore[arg-type]
            gate = self._gates[calls[0].limit]
            decision = await gate.decide(*calls)
            verdicts = zip([question.place for question in questions], decision.verdicts, strict=True)
            if not decision:
                self.verdicts.update(verdicts)
                return False
            found.update(verdicts)
            self._charged.append((gate, decision))
        self.verdicts.update(found)
        return True

    async def _quotas(self) -> bool:
        """Charge each quota that has room; the request is refused only if none has, and then charged nowhere else."""
        quotas = [question for question in self._questions if question.rule.quota]
        found = {question.place: await self._alone(question) for question in quotas}
        if not quotas or any(question.rule.shadow or _allows(found[question.place]) for question in quotas):
            self.verdicts.update(found)
            return True
        self.verdicts = found  # those of the other limits are as before their charge
        return False

    async def _alone(self, question: Question) -> Told:
        """Charge one limit, or give back to it; its refusal refuses nothing else."""
        limit, hits = question.rule.limit, question.hits
        if limit is None or hits == 0:
            return await self._peek(question)
        if hits > 0:
            return await charged(self._gates[limit], question)
        await self._gates[limit].refund(question.key, -hits)
        return (await self._gates[limit].peek(question.key, 0)).verdicts[0]

    async def _peek(self, question: Question) -> Verdict | None:
        """Ask one limit. A question of 0 hits asks whether one more would pass."""
        limit = question.rule.limit
        if limit is None:
            return None
        return (await self._gates[limit].peek(question.key, max(question.hits, 1))).verdicts[0]


async def charged(gate: AsyncGate, question: Question) -> Decision | Verdict:
    """Charge one limit; hits that are brought and do not fit take what is left."""
    decision = await gate.hit(question.key, question.hits)
    if decision.allowed or not question.brought:
        return decision
    if decision.remaining:
        await gate.take_up_to(question.key, question.hits)
    return (await gate.peek(question.key, question.hits)).verdicts[0]._replace(allowed=False)


def _allows(verdict: Told) -> bool:
    return verdict is not None and verdict.allowed


def _decisions(questions: Sequence[Question]) -> list[list[Question]]:
    """Divide questions into decisions: a decision has each count once, and a bounded number of calls."""
    rows: list[tuple[set[tuple[str, str]], list[Question]]] = []
    for question in questions:
        count = question.rule.limit.identity, question.key  # type: ignore[union-attr]
        for counts, row in rows:
            if count not in counts and len(row) < MOST_CALLS:
                break
        else:
            counts, row = set(), []
            rows.append((counts, row))
        counts.add(count)
        row.append(question)
    return [row for _, row in rows]
