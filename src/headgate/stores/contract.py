"""What a store is: a home for states that opens gates on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from headgate.call import Call, Cost
from headgate.clock import Clock
from headgate.engine import Decision
from headgate.engine.holding import Holding
from headgate.limit import Given, Limit

if TYPE_CHECKING:
    from headgate.stores.leases.terms import Lease

OnError = Literal["local", "allow", "deny", "raise"]
"""`local`: by a limiter of the same limits in this process; `allow` and `deny`: everything; `raise`: a StoreError."""


class Hit(Protocol):
    """A question about one key."""

    def __call__(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """The answer."""
        ...


class Reserve(Protocol):
    """A question about what fits within a time."""

    def __call__(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """The answer; its retry is the delay."""
        ...


class TakeUpTo(Protocol):
    """A question about as much as fits."""

    def __call__(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """The answer."""
        ...


class Gate(Protocol):
    """Limits bound to their states. The hot questions are attributes, so that they may be native."""

    @property
    def hit(self) -> Hit:
        """Spend, if every limit allows."""
        ...

    @property
    def peek(self) -> Hit:
        """What `hit` would answer; writes nothing."""
        ...

    @property
    def take_up_to(self) -> TakeUpTo:
        """Spend as much as fits now."""
        ...

    @property
    def reserve(self) -> Reserve:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        ...

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[tuple[str, ...], tuple[int, ...]], Decision]:
        """`decide` over these limits again and again: keys and costs, checked already, give a decision."""
        ...

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is; with a wait also for later."""
        ...

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back."""
        ...

    @property
    def release(self) -> Callable[[Decision], None]:
        """Give back what a decision has in flight; rates stay charged."""
        ...

    def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        ...

    def reset(self, key: str) -> None:
        """Make a key as new."""
        ...


class Store(Protocol):
    """A home for states."""

    @property
    def clock(self) -> Clock:
        """What waiting goes by."""
        ...

    @property
    def decides_by_clock(self) -> bool:
        """Whether decisions go by the same clock: then what they say of instants can be waited for as it is."""
        ...

    def gate(self, namespace: str, limits: tuple[Limit, ...], on_error: OnError = "local") -> Gate:
        """Limits bound to their states under a namespace; the same identity is the same budget.

        `on_error` says what is answered when the store cannot.
        """
        ...

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace."""
        ...


class AsyncGate(Protocol):
    """A gate whose questions are awaited."""

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        ...

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        ...

    async def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much as fits now."""
        ...

    async def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        ...

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[tuple[str, ...], tuple[int, ...]], Awaitable[Decision]]:
        """`decide` over these limits again and again: keys and costs, checked already, give a decision."""
        ...

    async def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is."""
        ...

    async def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back."""
        ...

    async def release(self, decision: Decision) -> None:
        """Give back what a decision has in flight; rates stay charged."""
        ...

    async def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        ...

    async def reset(self, key: str) -> None:
        """Make a key as new."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A store that has to be waited for, and so has gates of both kinds."""

    def async_gate(self, namespace: str, limits: tuple[Limit, ...], on_error: OnError = "local") -> AsyncGate:
        """As `Store.gate`, to be awaited."""
        ...

    async def aclose(self) -> None:
        """Let go of everything that is open."""
        ...


@runtime_checkable
class Leased(Protocol):
    """A gate that has bought permits in advance."""

    def close(self) -> None:
        """Give them back."""
        ...


@runtime_checkable
class AsyncLeased(Protocol):
    """The same, for event loops."""

    async def aclose(self) -> None:
        """Give them back."""
        ...


@runtime_checkable
class LeasingStore(Protocol):
    """A store that sells permits in advance."""

    def leased_gate(self, namespace: str, limits: tuple[Limit, ...], on_error: OnError, terms: Lease | bool) -> Gate:
        """As `gate`, with permits bought in advance."""
        ...

    def async_leased_gate(
        self, namespace: str, limits: tuple[Limit, ...], on_error: OnError, terms: Lease | bool
    ) -> Any:  # noqa: ANN401
        """As `leased_gate`, to be awaited."""
        ...
