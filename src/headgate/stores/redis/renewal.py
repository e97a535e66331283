"""The permits of this process on a server, renewed together before half of their lease is over.

A process that dies renews nothing, so its permits are free when their leases end. The server's clock measures the
lease and a mark identifies each permit, so a late command touches no other permit: a permit whose lease has ended is
not renewed, and giving it back frees nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from headgate.caches import ClearedWhenFull
from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.arguments import MOST_PLANS, Mark
from headgate.stores.redis.compiled import RENEW, Command, CompiledLimits, read_left
from headgate.stores.redis.connect import slot_of
from headgate.stores.redis.names import Names
from headgate.stores.redis.topology import Topology
from headgate.wording import log_of

MOST_AT_ONCE: Final = 1000
"""The most units in one command, unless one permit has more: the server does nothing else meanwhile."""
RENEWALS: Final = 4
"""Renewals in the duration of a lease."""

log = log_of("headgate")


class Name(NamedTuple):
    """The identity of a permit."""

    namespace: str
    limit: str
    key: str
    mark: Mark


class Held:
    """A permit in flight."""

    __slots__ = ("key", "limit", "mark", "names", "renewed", "units")

    def __init__(self, names: Names, limit: Limit, key: str, mark: Mark, units: int) -> None:
        self.names, self.limit, self.key, self.mark, self.units = names, limit, key, mark, units
        self.renewed = time.monotonic()

    @property
    def pause(self) -> float:
        """Seconds between renewals."""
        return self.limit.period_us / SECOND / RENEWALS


class PermitRenewal:
    """The permits that the gates of one store hold in this process."""

    def __init__(self, nodes: Topology, now_us: Callable[[], int] | None) -> None:
        self._topology = nodes
        self._now_us = now_us
        self.forget()

    def forget(self) -> None:
        """Drop all permits, after a fork: they are the parent's."""
        self.held: dict[Name, Held] = {}
        self.plans: ClearedWhenFull[tuple[str, Limit], CompiledLimits] = ClearedWhenFull(MOST_PLANS)
        self.pause = 0.0
        """Seconds until the thread runs again."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.thread: threading.Thread | None = None

    def hold(self, names: Names, limit: Limit, key: str, mark: Mark, units: int) -> None:
        """Renew this permit from now on."""
        held = Held(names, limit, key, mark, units)
        with self._lock:
            if self.thread is None:
                thread = threading.Thread(target=self._renew_all, name="headgate-renew", daemon=True)
                thread.start()  # may raise; then no permit is held that would not be renewed
                self.thread = thread
            elif held.pause < self.pause:
                self._changed.notify()
            self.held[Name(names.namespace, limit.identity, key, mark)] = held

    def drop(self, names: Names, limit: Limit, key: str, mark: Mark | None, units: int) -> int:
        """Stop renewing `units` of a permit; return how many were held: 0 if it is lost or another process has it."""
        if mark is None:
            return 0
        name = Name(names.namespace, limit.identity, key, mark)
        with self._lock:
            held = self.held.get(name)
            if held is None:
                return 0
            units = min(units, held.units)
            held.units -= units
            if not held.units:
                del self.held[name]
            return units

    def drop_key(self, names: Names, limits: Iterable[Limit], key: str) -> None:
        """Stop renewing the permits of a key under these limits, since the key was reset."""
        reset = {(names.namespace, limit.identity, key) for limit in limits}
        with self._lock:
            self.held = {name: held for name, held in self.held.items() if name[:3] not in reset}

    def drop_all(self, namespace: str) -> None:
        """Stop renewing all permits of a namespace."""
        with self._lock:
            self.held = {name: held for name, held in self.held.items() if name.namespace != namespace}

    def close(self) -> None:
        """Stop renewing until another permit is taken; held permits can still be given back."""
        with self._lock:
            self.thread = None
            self._changed.notify_all()

    def marks(self, names: Names, limit: Limit, key: str) -> list[Mark]:
        """Return the marks of the permits of a key that this process holds."""
        wanted = (names.namespace, limit.identity, key)
        with self._lock:
            return [name.mark for name in self.held if name[:3] == wanted]

    def _renew_all(self) -> None:
        me, idle = threading.current_thread(), False
        while True:
            with self._lock:
                self.pause = min((held.pause for held in self.held.values()), default=1.0)
                self._changed.wait(self.pause)
                if self.thread is not me:
                    return
                if not self.held:
                    if idle:
                        self.thread = None
                        return
                    idle = True
                    continue
                idle = False
                # New permits wait for the next round, which still comes before half of their lease is over.
                now = time.monotonic()
                due = [held for held in self.held.values() if now - held.renewed >= held.pause / 2]
            self.renew(due)

    def renew(self, due: Iterable[Held]) -> None:
        """Renew these permits on the server now."""
        clustered = self._topology.clustered
        by_slot = (lambda held: slot_of(held.names.subject(held.key))) if clustered else (lambda held: 0)
        for _, some in groupby(sorted(due, key=by_slot), key=by_slot):
            for batch in _batches(some):
                sent = time.monotonic()
                try:
                    left = self._send(batch)
                except Exception as error:  # for any error, go on with the others; these are next
                    log.warning("%d permits were not renewed; the next attempt follows: %r", len(batch), error)
                    continue
                self._note(batch, left, sent)

    def _send(self, batch: list[Held]) -> list[int]:
        """Renew these permits; return the number of units of each that are still in flight."""
        command: Command | None = None
        for held in batch:
            compiled = self._compiled_of(held)
            subject = held.names.subject(held.key)
            keys, argument = compiled.keys(subject), compiled.renewal(held.mark)
            if command is None:
                now = None if self._now_us is None else self._now_us()
                command = Command(compiled, RENEW, subject, keys, argument, now)
            else:
                command.groups += 1
                command.keys.append(keys)
                command.arguments.append(argument)
        return [] if command is None else read_left(self._topology.exchange(command))

    def _compiled_of(self, held: Held) -> CompiledLimits:
        name = (held.names.namespace, held.limit)
        compiled = self.plans.get(name)
        return self.plans.keep(name, CompiledLimits((held.limit,), held.names)) if compiled is None else compiled

    def _note(self, batch: list[Held], left: list[int], sent: float) -> None:
        lost = 0
        with self._lock:
            for held, units in zip(batch, left, strict=True):
                held.renewed = sent
                name = Name(held.names.namespace, held.limit.identity, held.key, held.mark)
                if not units and self.held.get(name) is held:
                    del self.held[name]
                    lost += 1
        if lost:
            log.warning("%d permits were lost: their leases had ended, or the server has forgotten them", lost)


def _batches(permits: Iterable[Held]) -> Iterator[list[Held]]:
    """Split permits into batches that one command may renew."""
    batch: list[Held] = []
    units = 0
    for held in permits:
        if batch and units + held.units > MOST_AT_ONCE:
            yield batch
            batch, units = [], 0
        batch.append(held)
        units += held.units
    if batch:
        yield batch
