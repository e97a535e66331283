"""The steps of a lease: the commands that refill, spend and give back, and what the ledger notes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from headgate.call import Cost
from headgate.clock import SECOND, Clock
from headgate.engine import LEASED, PEEK, TAKE, Decision, read_clock
from headgate.engine.lease_cache import leased_tokens_for
from headgate.forks import after_fork
from headgate.layout import ANSWER_FIELDS
from headgate.limit import Given, Limit
from headgate.stores.contract import Costs, Keys, Marks
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.terms import Lease
from headgate.stores.memory import MemoryStore
from headgate.stores.redis.bound import BoundSteps
from headgate.stores.redis.compiled import AHEAD, GIVE, HEARTBEAT, CompiledLimits, instant
from headgate.stores.redis.connect import FAILURES
from headgate.stores.redis.cross_slot import Steps, log

HEARTBEAT_EVERY: Final = 5 * SECOND
"""The time between two heartbeats, by which a process reports itself and learns how many processes there are."""
HEARTBEAT_SOON: Final = SECOND // 2
"""The time between the first two heartbeats: processes that start together then know of each other."""
_process = os.urandom(16)
"""The name of this process; not its number, which other hosts use too."""


class Leasing(BoundSteps):
    """The base of both kinds of leased limits."""

    _hit: Callable[..., Any]
    """The gate's `hit`, for calls that a lease cannot simply pay."""

    def lease_by(self, terms: Lease, clock: Clock | None, saw_nodes: Callable[[int], int]) -> None:
        """Lease on these terms; `saw_nodes` is called with the number of processes, and returns the one to go by."""
        local = MemoryStore(clock=clock)
        self._tokens = leased_tokens_for(local.bind("leases", self.limits), self._slowly)
        self._now: Callable[[], int] = lambda: read_clock(local.clock)
        self._ledger = LeaseLedger(self.limits, terms, self._tokens, self._now)
        self._heartbeat = CompiledLimits((Limit.parse("1/hour as nodes"),), self.space.names)
        self._saw_nodes = saw_nodes
        self._counted_us = -HEARTBEAT_EVERY
        self._counts = 0
        after_fork(self._after_fork)

    def _slowly(self, key: str, cost: Cost, limit: Given | None) -> Any:  # noqa: ANN401 - a decision, or one to await
        return self._hit(key, cost, limit=limit)

    def _leased_units(self, keys: Keys, costs: Costs) -> int | None:
        """Return the units that a lease may pay: one number for one key. None for other calls."""
        return costs[0] if isinstance(keys, str) and costs.count(costs[0]) == len(costs) else None

    def next_return(self) -> float | None:
        """Return the seconds until tokens must be given back; None if there are none."""
        pause = self._ledger.next_return()
        return None if pause is None else pause / SECOND

    @property
    def unspent(self) -> int:
        """The number of tokens that can still be spent."""
        now = self._now()
        return sum(lease.tokens for lease in list(self._tokens.leases.values()) if now < lease.until_us)

    def forget_leases(self) -> None:
        """Drop all leases: no token of them is spent any more."""
        self._ledger.forget()

    def _after_fork(self) -> None:
        self._ledger.disown()

    def _refused(self, key: str, units: int, missed: int = 0) -> Decision | None:
        """Return the refusal of a key that is short, or a remembered one."""
        refused = self._ledger.refused(key, units, missed)
        if refused is None:
            refused = self.space.refusals.find(self.limits, key, (units,) * len(self.limits), TAKE)
        return refused

    def _gave(self, keys: Keys) -> None:
        """Note that units of keys were given back at the server."""
        for key in (keys,) if isinstance(keys, str) else keys:
            self._ledger.resume(key)

    def _exactly(self, key: str, units: int) -> Steps[Decision]:
        refused = self._refused(
            key, units
        )  # a remembered refusal is no news of the server, by which a pause would begin
        if refused is not None:
            return refused
        decision = yield from self.deciding(key, (units,) * len(self.limits), TAKE, 0)
        if self._ledger.saw(key, decision):
            yield from self._count_nodes()
        # While this process was counted, another caller may have heard a later time.
        refused = None if decision.allowed else self._refused(key, units)
        return decision if refused is None else refused

    def _refill(self, key: str, units: int, most: int) -> Steps[Decision | None]:
        """Ask for units, and for tokens ahead, `most` in all, which go into the ledger; None if another caller asks.

        A caller that asks for no tokens gets its units by the decision; but if many processes ask about the key, the
        server adds tokens.
        """
        question = self._ledger.asking(key, units, most)
        if question is None:
            return None
        sent, turn = question
        compiled, costs = self.compiled, (units,) * len(self.limits)
        try:
            refused_since = self.space.refusals.sent()
            command = self.command(compiled, AHEAD, key, compiled.ahead(units, most, turn))
            command.keys[0] += compiled.turns(command.subject)
            reply, index = yield command
            decision = compiled.read(reply, index, key, costs, AHEAD)
        except BaseException as error:
            self._ledger.failed(key, error if isinstance(error, FAILURES) else None)
            raise
        hot = self._ledger.granted(key, sent, instant(reply), decision, compiled.read_turn(reply, index))
        if decision.allowed:
            self.space.refusals.drop(self.limits, key)  # callers are told the next question, and may ask it
        else:
            self.space.refusals.keep(self.limits, key, costs, refused_since, decision)
        if hot or self._counts < 2:
            yield from self._count_nodes()
        return decision

    @staticmethod
    def _own(answer: Decision | None, units: int, wanted: int) -> Decision | None:
        """Return the answer to a caller that asked for its units alone, and got them."""
        own = answer is not None and answer.allowed and answer.granted == units == wanted
        return answer if own else None

    def _return(self, most: int | None = None) -> Steps[None]:
        """Give back unused tokens, once: a failure loses those of the last command; the others are kept for later."""
        due = self._ledger.unused(most)
        try:
            while due:
                key, units, marks = due.pop(0)
                back = self.compiled.back((units,) * len(self.limits), marks)
                yield self.command(self.compiled, GIVE, (key,) * len(self.limits), back)
                self.space.refusals.gave((key,))
        except FAILURES as error:  # the caller wanted something else, so it sees no error
            log.warning("unused tokens were lost: %s: %s", type(error).__name__, error)
        finally:
            if due:
                self._ledger.keep(due)

    def _count_nodes(self) -> Steps[None]:
        """Report this process and count all processes.

        Their number sets the pace of questions, and each admits its share while it is cut off from the server.
        """
        now = self._now()
        if now - self._counted_us < (HEARTBEAT_SOON if self._counts == 1 else HEARTBEAT_EVERY):
            return
        self._counted_us = now
        self._counts += 1
        # While they are cut off, all limiters on a store share one local store, so the store counts once. The key of
        # a user is never empty.
        name = blake2b(b"%d" % id(self.space.topology), key=_process, digest_size=16).digest()
        try:
            reply, _ = yield self.command(self._heartbeat, HEARTBEAT, "", b"$16\r\n%b\r\n" % name)
        except FAILURES:
            return
        nodes = self._saw_nodes(int(reply))
        if self._counts > 1:
            self._ledger.turns.nodes = nodes

    def _returned_to_lease(self, keys: Keys, units: Costs, marks: Marks) -> bool:
        """Put units that were paid from a lease back into it; whether they were."""
        mark = marks[0]
        if mark is None or mark[0] != LEASED:
            return False
        self._ledger.refund(keys if isinstance(keys, str) else keys[0], min(units), mark[1])
        return True

    def _peek(self, key: str, cost: int) -> Steps[Decision]:
        """Return what a hit would: the units left at the server, plus the tokens of this process for the key.

        Only leases that were charged before the server was asked are counted, so no token is counted twice.
        """
        grants = self._ledger.grants(key)
        seen = yield from self.deciding(key, (cost,) * len(self.limits), PEEK, 0)
        return self._beside(seen, key, cost, self._ledger.tokens(grants))

    def with_held(self, seen: Decision) -> Decision:
        """Return a peek while the server is away, plus the tokens of this process for the key."""
        call = seen.calls[0]
        return self._beside(seen, call.key, call.cost, self._ledger.tokens(self._ledger.grants(call.key)))

    def _beside(self, seen: Decision, key: str, cost: int, tokens: list[int]) -> Decision:
        """Return the decision with these tokens added; allowed, if one lease pays for the cost."""
        answers, paid = seen._answers, max(tokens, default=0) >= cost
        for row in range(0, len(answers), ANSWER_FIELDS):
            answers[row + 1] += sum(tokens)
            if paid:
                answers[row], answers[row + 2] = 1, 0
        costs = (cost,) * len(self.limits)
        return Decision(self.limits, key, costs, answers, charged=False, degraded=seen.degraded)


def _rename_process() -> None:
    global _process
    _process = os.urandom(16)


after_fork(_rename_process)
