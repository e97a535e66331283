"""Limits bound to a server: the commands, their order, and the reading of the replies.

The steps are written once, as generators that yield commands and are sent replies; bound_async.py runs the same steps
in event loops.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from headgate.algorithms import log
from headgate.algorithms.block import end_of
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO, Decision
from headgate.errors import StoreError
from headgate.layout import UNIT_BITS, WORD
from headgate.limit import Limit
from headgate.stores.contract import Costs, Held, Keys, Marks, Record
from headgate.stores.redis.compiled import GIVE, RESET, Command, CompiledLimits
from headgate.stores.redis.connect import FAILURES, slot_of
from headgate.stores.redis.cross_slot import Steps, decide_cross_slot
from headgate.stores.redis.names import Names
from headgate.stores.redis.node import server_time
from headgate.stores.redis.refusal_cache import RefusalCache
from headgate.stores.redis.renewal import PermitRenewal
from headgate.stores.redis.topology import Topology

T = TypeVar("T")
PERMIT: Final = struct.Struct("<qI")
"""The first bytes of each member of a permit: its instant, and its index among the permits of that instant."""
RING_AT: Final = 25
"""The bytes of a log before its stamps: capacity, place of the oldest and count in 3 bytes each, oldest and newest."""


class Space(NamedTuple):
    """The objects that the bound limits of one namespace share."""

    names: Names
    topology: Topology
    refusals: RefusalCache
    now_us: Callable[[], int] | None
    """The clock of a test; None for the server's clock."""
    renewal: PermitRenewal


def failed(what: str, error: BaseException) -> StoreError:
    """Return the error that callers see when the server, or the connection to it, fails."""
    return StoreError(f"{what}: {type(error).__name__}: {error}")


class BoundSteps:
    """The steps of limits bound to a server."""

    def __init__(self, space: Space, limits: tuple[Limit, ...]) -> None:
        self.limits = limits
        self.space = space
        self.compiled = CompiledLimits(limits, space.names)
        self._parts: dict[tuple[int, ...], CompiledLimits] = {}

    def part(self, indices: tuple[int, ...]) -> CompiledLimits:
        """Return some of the limits, compiled: those whose keys are in one slot of a cluster."""
        if len(indices) == len(self.limits):
            return self.compiled
        found = self._parts.get(indices)
        if found is None:
            limits = tuple(self.limits[at] for at in indices)
            found = self._parts[indices] = CompiledLimits(limits, self.space.names)
        return found

    def command(self, compiled: CompiledLimits, mode: int, keys: Keys, argument: bytes) -> Command:
        """Return the command to send."""
        subjects = compiled.subjects(keys)
        first = subjects if isinstance(subjects, bytes) else subjects[0]
        now = None if self.space.now_us is None else self.space.now_us()
        return Command(compiled, mode, first, compiled.keys(subjects), argument, now)

    def deciding(self, keys: Keys, costs: Costs, mode: int, wait: int) -> Steps[Decision]:
        """Decide; a remembered refusal that still holds is returned without asking the server."""
        refusals, compiled = self.space.refusals, self.compiled
        if mode in (TAKE, UP_TO):
            refused = refusals.find(self.limits, keys, costs, mode)
            if refused is not None:
                return refused
        sent = refusals.sent()
        try:
            slots = self._by_slot(keys)
            if len(slots) > 1:
                decision = yield from decide_cross_slot(self, slots, keys, costs, mode)
            else:
                run = TAKE if mode == RESERVE and not compiled.lends else mode  # limits that do not lend take or refuse
                argument = compiled.argument(costs) if run != RESERVE else compiled.promise(costs, wait)
                reply, index = yield self.command(compiled, run, keys, argument)
                decision = compiled.read(reply, index, keys, costs, run)
        except FAILURES as error:
            raise failed("the store cannot answer now", error) from error
        if compiled.in_flight and decision.allowed and mode != PEEK:
            self._hold(decision)
        elif compiled.pauses:
            refusals.gave((keys,) if isinstance(keys, str) else keys)  # earlier refusals do not tell the pause
        elif not decision.allowed and mode in (TAKE, UP_TO):
            refusals.keep(self.limits, keys, (1,) * len(costs) if mode == UP_TO else costs, sent, decision)
        return decision

    def _hold(self, decision: Decision) -> None:
        """Renew the permits of a decision until they are given back."""
        calls, verdicts = decision.calls, decision.verdicts
        for at in self.compiled.in_flight:
            call = calls[at]
            if call.cost:
                self.space.renewal.hold(self.space.names, call.limit, call.key, verdicts[at].mark, call.cost)

    def _by_slot(self, keys: Keys) -> list[list[int]]:
        """Return the indexes of the calls, grouped by cluster slot, in the order of the calls."""
        if isinstance(keys, str) or not self.space.topology.clustered:
            return [[]]
        slots: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            slots.setdefault(slot_of(self.space.names.subject(key)), []).append(index)
        return list(slots.values())

    def giving(self, keys: Keys, units: Costs, marks: Marks) -> Steps[None]:
        """Give back, once: after a lost reply it is not known whether the server applied the command."""
        space, each = self.space, (keys,) * len(self.limits) if isinstance(keys, str) else keys
        units = tuple(
            space.renewal.drop(space.names, limit, key, mark, count) if limit.in_flight else count
            for limit, key, mark, count in zip(self.limits, each, marks, units, strict=True)
        )
        if not any(units):
            return
        space.refusals.gave(each)
        try:
            yield from self.giving_back(each, units, marks)
        except FAILURES as error:
            raise failed("the store could not give back the units", error) from error
        finally:
            space.refusals.gave(each)  # again: the server may have refused meanwhile

    def giving_back(
        self, keys: tuple[str, ...], units: Costs, marks: Marks, among: tuple[int, ...] = ()
    ) -> Steps[None]:
        """Give back, slot by slot; `among` are the indexes of the limits, or empty for all of them."""
        own = among or tuple(range(len(keys)))
        for indices in self._by_slot(keys):
            some = indices or list(range(len(keys)))
            part = self.part(tuple(own[at] for at in some))
            back = part.back(tuple(units[at] for at in some), tuple(marks[at] for at in some))
            yield self.command(part, GIVE, tuple(keys[at] for at in some), back)

    def clearing(self, key: str) -> Steps[None]:
        """Forget a key."""
        space = self.space
        space.refusals.gave((key,))
        if self.compiled.in_flight:
            space.renewal.drop_key(space.names, self.limits, key)
        try:
            yield self.command(self.compiled, RESET, key, b"$0\r\n\r\n")
        except FAILURES as error:
            raise failed("the key was not reset", error) from error
        finally:
            space.refusals.gave((key,))

    def holders_of(self, key: str) -> list[Held]:
        """Return the permits of a key, asked over a connection of this thread."""
        names, topology = self.space.names, self.space.topology
        found: list[Held] = []
        try:
            node = topology.ready_for(subject := names.subject(key))
            now = server_time(node) if self.space.now_us is None else self.space.now_us()
            for index in self.compiled.in_flight:
                limit = self.limits[index]
                units = node.command(b"ZRANGEBYSCORE", subject + names.suffix(limit), b"(%d" % now, b"+inf")
                marks = self.space.renewal.marks(names, limit, key)
                own = {PERMIT.pack(since, number >> UNIT_BITS) for since, number in marks}
                for permit, count in Counter(unit[: PERMIT.size] for unit in units).items():
                    found.append((index, max(0, now - PERMIT.unpack(permit)[0]), count, permit in own))
        except FAILURES as error:
            raise failed("the holders cannot be listed", error) from error
        return found

    def records_of(self, key: str) -> list[Record]:
        """Return the record of a key under each limit, read over a connection of this thread."""
        names, topology = self.space.names, self.space.topology
        found: list[Record] = []
        try:
            node = topology.ready_for(subject := names.subject(key))
            now = server_time(node) if self.space.now_us is None else self.space.now_us()
            for limit in self.limits:
                name = subject + names.suffix(limit)
                until = int(node.command(b"GET", name + b"b") or 0) if limit.block_us else 0
                until = end_of(until) if limit.growth else until
                raw = node.command(b"GET", name) if limit.step is log else None
                stamps = log.counting(_ring(raw), log.Params(*limit.params), now) if raw else ()
                found.append((until if until > now else 0, tuple(stamps)))
        except FAILURES as error:
            raise failed("the records of the key cannot be read", error) from error
        return found


def _ring(raw: bytes) -> list[int]:
    """Return the stamps of a log, oldest first, as its kernel keeps them: a header, then a ring."""
    (cap, tail, count), stamps = (int.from_bytes(raw[at : at + 3], "little") for at in (0, 3, 6)), raw[RING_AT:]
    ring = struct.unpack(f"<{cap}q", stamps[: cap * WORD])
    return [ring[(tail + nth) % cap] for nth in range(count)]


class BoundLimits(BoundSteps):
    """Bound limits for threads: a command uses a connection of the calling thread."""

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Ask every limit in one step, then charge all or none."""
        return self._exchange(self.deciding(keys, costs, mode, wait))

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units that were charged at these marks."""
        self._exchange(self.giving(keys, units, marks))

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        self._exchange(self.clearing(key))

    def holders(self, key: str) -> list[Held]:
        """Return the permits in flight of a key."""
        return self.holders_of(key)

    def records(self, key: str) -> list[Record]:
        """Return the record of a key under each limit."""
        return self.records_of(key)

    def _exchange(self, steps: Steps[T]) -> T:
        topology = self.space.topology
        try:
            command = next(steps)
            while True:
                try:
                    reply = topology.exchange(command)
                except FAILURES as error:
                    command = steps.throw(error)
                else:
                    command = steps.send((reply, 0))
        except StopIteration as done:
            value: T = done.value
            return value
