"""What a store is: a home for states. It binds limits to their states; four methods over them are all it has to do.

`Gate` and `AsyncGate` are written once above every store: they check arguments, know plans, and have the verbs that
limiters and policies use. A store knows nothing of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from headgate.clock import Clock
from headgate.engine import Decision
from headgate.engine.modes import TAKE
from headgate.limit import Limit

if TYPE_CHECKING:
    from headgate.stores.leases.terms import Lease

OnError = Literal["local", "allow", "deny", "raise"]
"""`local`: by a limiter of the same limits in this process; `allow` and `deny`: everything; `raise`: a StoreError."""
Keys = str | tuple[str, ...]
"""One key for every limit, or a key for each."""
Costs = tuple[int, ...]
Marks = tuple[tuple[int, int] | None, ...]
"""Where each charge was made, as the verdicts of its decision tell; None for a charge that is taken for one of now."""
Held = tuple[int, int, int, bool]
"""A permit: the index of its limit, its age in microseconds, its units, and whether this process holds it."""


class BoundLimits(Protocol):
    """Limits bound to their states. A method raises `StoreError` where the store cannot answer now."""

    limits: tuple[Limit, ...]

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Ask every limit in one step, then charge all or none; `mode` and `wait` are those of `engine/modes.py`."""
        ...

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units that were charged at these marks."""
        ...

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        ...

    def holders(self, key: str) -> list[Held]:
        """The permits of a key that are in flight."""
        ...


class Store(Protocol):
    """A home for states."""

    @property
    def clock(self) -> Clock:
        """The clock that waiting goes by."""
        ...

    @property
    def decides_by_clock(self) -> bool:
        """Whether decisions go by the same clock: then their instants can be waited for as they are."""
        ...

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> BoundLimits:
        """Bind limits to their states under a namespace; limits of the same identity share a state."""
        ...

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace."""
        ...


class AsyncBoundLimits(Protocol):
    """`BoundLimits` whose methods are awaited."""

    limits: tuple[Limit, ...]

    async def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """See `BoundLimits.run`."""
        ...

    async def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """See `BoundLimits.give`."""
        ...

    async def clear(self, key: str) -> None:
        """See `BoundLimits.clear`."""
        ...

    async def holders(self, key: str) -> list[Held]:
        """See `BoundLimits.holders`."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A store that event loops have to wait for."""

    def bind_async(self, namespace: str, limits: tuple[Limit, ...]) -> AsyncBoundLimits:
        """See `Store.bind`."""
        ...

    async def aclose(self) -> None:
        """Close everything that is open."""
        ...


@runtime_checkable
class LeasingStore(Protocol):
    """A store that charges tokens in advance, to be spent in this process."""

    def bind_leased(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> BoundLimits:
        """See `Store.bind`; the bound limits have a `close` that gives tokens back."""
        ...

    def bind_leased_async(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> AsyncBoundLimits:
        """See `AsyncStore.bind_async`; the bound limits have an `aclose` that gives tokens back."""
        ...
