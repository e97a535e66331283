"""The protocol of a store, which keeps states: it binds limits to their states and has five methods over them.

`Gate` and `AsyncGate` are written once for every store: they check arguments, compile plans, and have the verbs that
limiters and policies use. A store does none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from headgate.clock import Clock
from headgate.engine import TAKE, Decision
from headgate.limit import Limit

if TYPE_CHECKING:
    from headgate.stores.leases.terms import Lease

OnError = Literal["local", "allow", "deny", "raise"]
"""The answer without the store. `local`: by the same limits in this process; `allow`, `deny`; `raise` a StoreError."""
Keys = str | tuple[str, ...]
"""One key for every limit, or a key for each."""
Costs = tuple[int, ...]
Marks = tuple[tuple[int, int] | None, ...]
"""The mark of each charge, from the verdicts of its decision; None for a charge that counts as made now."""
Held = tuple[int, int, int, bool]
"""A permit: the index of its limit, its age in microseconds, its units, and whether this process holds it."""
Record = tuple[int, tuple[int, ...]]
"""The record of a key under one limit: the end of its block, or 0; and the stamps of a log that count, oldest first.

Instants are microseconds by the clock of the store.
"""


class BoundLimits(Protocol):
    """Limits bound to their states. Each method raises `StoreError` if the store cannot answer now."""

    limits: tuple[Limit, ...]

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Ask every limit in one step, then charge all or none; `mode` and `wait` are those of `engine/modes.py`."""

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units that were charged at these marks."""

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""

    def holders(self, key: str) -> list[Held]:
        """Return the permits in flight of a key."""

    def records(self, key: str) -> list[Record]:
        """Return the record of a key under each limit; writes nothing."""


class Store(Protocol):
    """An object that keeps states."""

    @property
    def clock(self) -> Clock:
        """The clock for waiting."""

    @property
    def decides_by_clock(self) -> bool:
        """Whether decisions use the same clock; then a caller can wait for their instants as they are."""

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> BoundLimits:
        """Bind limits to their states under a namespace; limits of the same identity share a state."""

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace."""


class AsyncBoundLimits(Protocol):
    """`BoundLimits` whose methods are awaited."""

    limits: tuple[Limit, ...]

    async def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """See `BoundLimits.run`."""

    async def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """See `BoundLimits.give`."""

    async def clear(self, key: str) -> None:
        """See `BoundLimits.clear`."""

    async def holders(self, key: str) -> list[Held]:
        """See `BoundLimits.holders`."""

    async def records(self, key: str) -> list[Record]:
        """See `BoundLimits.records`."""


@runtime_checkable
class AsyncStore(Protocol):
    """A store whose answers event loops must await."""

    def bind_async(self, namespace: str, limits: tuple[Limit, ...]) -> AsyncBoundLimits:
        """See `Store.bind`."""

    async def aclose(self) -> None:
        """Close all connections."""


@runtime_checkable
class LeasingStore(Protocol):
    """A store that charges tokens in advance, to be spent in this process."""

    def bind_leased(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> BoundLimits:
        """See `Store.bind`; the bound limits have a `close` that gives tokens back."""

    def bind_leased_async(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> AsyncBoundLimits:
        """See `AsyncStore.bind_async`; the bound limits have an `aclose` that gives tokens back."""
