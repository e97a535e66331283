"""Gates on a server: what is asked, in what order, and what the answers come to.

The steps of a decision are written once, as generators that yield commands and are sent replies; this gate and the
awaited one (gate_async.py) differ in how they carry them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from headgate.algorithms.concurrency.reference import UNIT_BITS
from headgate.call import Call, Cost, checked_cost, checked_costs, checked_key
from headgate.engine import Decision
from headgate.engine.arguments import Mark, Plans, checked_calls, checked_limits, checked_refund, in_flight_of
from headgate.engine.holding import Holding, listed
from headgate.engine.modes import PEEK, RESERVE, TAKE, UP_TO
from headgate.errors import StoreError
from headgate.limit import Given, Limit
from headgate.stores.fallback import Fallback
from headgate.stores.redis.compiled import GIVE, RESET, Command, CompiledLimits, Keys
from headgate.stores.redis.connect import FAILURES, slot_of
from headgate.stores.redis.cross_slot import Steps, decide_cross_slot
from headgate.stores.redis.names import Names
from headgate.stores.redis.refusal_cache import RefusalCache
from headgate.stores.redis.renewal import PermitRenewal
from headgate.stores.redis.topology import Topology, server_time

T = TypeVar("T")

PERMIT: Final = struct.Struct("<qI")
"""What the members of a permit begin with: its instant, and its index among those of that instant."""


class _Asker:
    """The steps."""

    def __init__(
        self,
        limits: tuple[Limit, ...],
        names: Names,
        nodes: Topology,
        refusals: RefusalCache,
        fallback: Fallback,
        now_us: Callable[[], int] | None,
        renewal: PermitRenewal,
    ) -> None:
        self.limits = checked_limits(limits)
        self._names = names
        self._topology = nodes
        self._refusals = refusals
        self._fallback = fallback
        self._now_us = now_us
        self._renewal = renewal
        self._own = self._compiled_of(limits)
        self._plans = Plans(limits, self._compiled_of)
        self._deciding: dict[tuple[Limit, ...], CompiledLimits] = {}

    def _compiled_of(self, limits: tuple[Limit, ...]) -> CompiledLimits:
        return CompiledLimits(limits, self._names)

    def remembered(self, limits: tuple[Limit, ...]) -> CompiledLimits:
        """The compiled limits of calls given to `decide`: the same few, again and again."""
        compiled = self._deciding.get(limits)
        if compiled is None:
            if len(self._deciding) >= 1024:
                self._deciding.clear()
            compiled = self._deciding[limits] = self._compiled_of(limits)
        return compiled

    def command(self, compiled: CompiledLimits, mode: int, keys: Keys, argument: bytes) -> Command:
        subjects = compiled.subjects(keys)
        first = subjects if isinstance(subjects, bytes) else subjects[0]
        now = None if self._now_us is None else self._now_us()
        return Command(compiled, mode, first, compiled.keys(subjects), argument, now)

    def _ask(self, key: str, cost: Cost, limit: Given | None, mode: int, wait: int = 0) -> Steps[Decision]:
        compiled = self._own if limit is None else self._plans.find(limit)
        return self._decide(compiled, checked_key(key), checked_costs(compiled.limits, cost), mode, wait)

    def _decide(
        self, compiled: CompiledLimits, keys: Keys, costs: tuple[int, ...], mode: int, wait: int = 0
    ) -> Steps[Decision]:
        refusals = self._refusals
        if mode in (TAKE, UP_TO):
            denied = refusals.find(compiled.limits, keys, costs, mode)
            if denied is not None:
                return denied
        sent = refusals.sent()
        try:
            slots = self._by_slot(keys)
            if len(slots) > 1:
                decision = yield from decide_cross_slot(self, compiled, slots, keys, costs, mode)
            else:
                run = TAKE if mode == RESERVE and not compiled.lends else mode  # what is not promised is taken or not
                argument = compiled.argument(costs) if run != RESERVE else compiled.promise(costs, wait)
                reply, index = yield self.command(compiled, run, keys, argument)
                decision = compiled.read(reply, index, keys, costs, run)
        except FAILURES as error:
            return self._fallback.decide(compiled.limits, keys, costs, mode, wait, f"{type(error).__name__}: {error}")
        if compiled.in_flight and decision.allowed and mode != PEEK:
            self._hold(compiled, decision)
        elif not decision.allowed and mode in (TAKE, UP_TO):
            refusals.keep(compiled.limits, keys, (1,) * len(costs) if mode == UP_TO else costs, sent, decision)
        return decision

    def _hold(self, compiled: CompiledLimits, decision: Decision) -> None:
        """Keep what a decision has in flight, until it is given back."""
        calls, verdicts = decision.calls, decision.verdicts
        for at in compiled.in_flight:
            if calls[at].cost:
                self._renewal.hold(self._names, calls[at].limit, calls[at].key, verdicts[at].mark, calls[at].cost)

    def _by_slot(self, keys: Keys) -> list[list[int]]:
        """The numbers of the calls, by cluster slot, in the order asked."""
        if isinstance(keys, str) or not self._topology.clustered:
            return [[]]
        slots: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            slots.setdefault(slot_of(self._names.subject(key)), []).append(index)
        return list(slots.values())

    def _refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None) -> Steps[None]:
        limits, keys, units, marks = checked_refund(self.limits, charged, n)
        if isinstance(charged, Decision) and charged.degraded:
            self._fallback.give(limits, keys, units, marks)
            return
        each = zip(limits, keys, marks, units, strict=True)
        units = tuple(self._renewal.drop(self._names, *one) if one[0].in_flight else one[3] for one in each)
        if any(units):
            self._refusals.gave(keys)
            try:
                yield from self.give(self.remembered(limits), keys, units, marks)
            except FAILURES as error:
                # Never sent twice: whether it was applied is not known.
                self._fallback.regret(f"{type(error).__name__}: {error}")
            finally:
                self._refusals.gave(keys)  # again: a refusal may have been decided while this was on its way

    def give(
        self, compiled: CompiledLimits, keys: tuple[str, ...], units: tuple[int, ...], marks: tuple[Mark | None, ...]
    ) -> Steps[None]:
        for indices in self._by_slot(keys):
            some = indices or list(range(len(keys)))
            part = compiled if len(some) == len(keys) else self.remembered(tuple(compiled.limits[at] for at in some))
            back = part.back(tuple(units[at] for at in some), tuple(marks[at] for at in some))
            yield self.command(part, GIVE, tuple(keys[at] for at in some), back)

    def _holders(self, key: str) -> list[Holding]:
        try:
            node = self._topology.ready_for(subject := self._names.subject(key))
            now = server_time(node) if self._now_us is None else self._now_us()
            found = []
            for index in self._own.in_flight:
                limit = self.limits[index]
                units = node.command(b"ZRANGEBYSCORE", subject + self._names.suffix(limit), b"(%d" % now, b"+inf")
                marks = self._renewal.marks(self._names, limit, key)
                own = {PERMIT.pack(since, number >> UNIT_BITS) for since, number in marks}
                for permit, count in Counter(unit[: PERMIT.size] for unit in units).items():
                    found.append((index, PERMIT.unpack(permit)[0], count, permit in own))
        except FAILURES as error:
            raise StoreError(f"the holders cannot be listed: {type(error).__name__}: {error}") from error
        return listed(self.limits, now, found)

    def _reset(self, key: str) -> Steps[None]:
        self._refusals.gave((checked_key(key),))
        if self._own.in_flight:
            self._renewal.drop_key(self._names, self.limits, key)
        try:
            yield self.command(self._own, RESET, key, b"$0\r\n\r\n")
        except FAILURES as error:
            raise StoreError(f"the key was not reset: {type(error).__name__}: {error}") from error
        finally:
            self._refusals.gave((key,))


class Gate(_Asker):
    """Asks by the connection of the thread that asks."""

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        return self._run(self._ask(key, cost, limit, TAKE))

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        return self._run(self._ask(key, cost, limit, PEEK))

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much as fits now."""
        return self._run(self._ask(key, checked_cost(n), limit, UP_TO))

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        return self._run(self._ask(key, cost, limit, RESERVE, wait))

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[tuple[str, ...], tuple[int, ...]], Decision]:
        """`decide` over these limits again and again."""
        compiled = self.remembered(checked_limits(limits))
        return lambda keys, costs: self._run(self._decide(compiled, keys, costs, TAKE))

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is; with a wait also for later."""
        limits, keys, costs = checked_calls(calls)
        mode = PEEK if peek else RESERVE if wait_us else TAKE
        return self._run(self._decide(self.remembered(limits), keys, costs, mode, wait_us))

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back."""
        self._run(self._refund(charged, n))

    def release(self, decision: Decision) -> None:
        """Give back what a decision has in flight; rates stay charged."""
        self._run(self._refund(decision, in_flight_of(decision)))

    def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        return self._holders(checked_key(key))

    def reset(self, key: str) -> None:
        """Make a key as new."""
        self._run(self._reset(key))

    def _run(self, steps: Steps[T]) -> T:
        try:
            command = next(steps)
            while True:
                try:
                    reply = self._topology.exchange(command)
                except FAILURES as error:
                    command = steps.throw(error)
                else:
                    command = steps.send((reply, 0))
        except StopIteration as done:
            value: T = done.value
            return value
