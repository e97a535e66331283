"""The counts of Envoy's limits in one process, as a part of a snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headgate.observe import LimiterPart, Snapshot, empty, store_part
from headgate.stores import Store

if TYPE_CHECKING:
    from headgate.edge.envoy import EnvoyLimits  # protobuf is needed for Envoy only

NAMESPACE: Final = "envoy"


class EnvoyCounts:
    """Tells what Envoy's limits have decided; and how their store is, in a process that has no other use for it."""

    def __init__(self, limits: EnvoyLimits, store: Store | None = None) -> None:
        self._limits = limits
        self._store = store

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return what was counted in this process."""
        total = empty(time.time())
        counts = self._limits.counts()
        total["limiters"] = [
            LimiterPart(namespace=NAMESPACE, counts=counts, in_flight=0, waiting=0, lease_permits=0),
        ]
        total["stores"] = [] if self._store is None else [store_part("", self._store)]
        return total
