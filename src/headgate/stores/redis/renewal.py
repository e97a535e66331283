"""The permits of this process on a Redis server: many are renewed by one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.limit import Limit
from headgate.stores.arguments import MOST_PLANS
from headgate.stores.redis.compiled import RENEW, Command, CompiledLimits, read_left
from headgate.stores.redis.connect import slot_of
from headgate.stores.redis.topology import Topology
from headgate.stores.renewal import BaseRenewal, Held
from headgate.wording import log_of

MOST_AT_ONCE: Final = 1000
"""The most units in one command, unless one permit has more: the server does nothing else meanwhile."""

log = log_of("headgate")


class PermitRenewal(BaseRenewal):
    """The permits that the gates of one store hold in this process."""

    def __init__(self, nodes: Topology, now_us: Callable[[], int] | None) -> None:
        self._topology = nodes
        self._now_us = now_us
        super().__init__()

    def forget(self) -> None:
        """Drop all permits, after a fork: they are the parent's."""
        super().forget()
        self.plans: ClearedWhenFull[tuple[str, Limit], CompiledLimits] = ClearedWhenFull(MOST_PLANS)

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
                self.note(batch, left, sent)

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
