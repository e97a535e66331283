"""A caller that may have to wait, in a thread or in an event loop; and its order among others."""

from __future__ import annotations

from sys import float_info
from typing import Any, NamedTuple, Self

from headgate.call import Call, Cost
from headgate.engine import RESERVE, Decision
from headgate.errors import InvalidCall
from headgate.limit import Given
from headgate.limiter.promises import Promise
from headgate.wording import shown


class Order(NamedTuple):
    """The order of a caller among those that wait for the same key."""

    priority: int = 0
    fair_by: str = ""
    weight: float = 1.0


def order_of(priority: int, fair_by: str | None, weight: float) -> Order | None:
    """Return the order of a caller; None for first come, first served. Raise `InvalidCall` for other values."""
    if fair_by is None and type(priority) is int and type(weight) is int and priority == 0 and weight == 1:
        return None
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise InvalidCall(f"priority must be a whole number, and the highest goes first; got {shown(priority)}")
    if fair_by is not None and not isinstance(fair_by, str):
        raise InvalidCall(f"fair_by must be a str, such as the name of a tenant; got {shown(fair_by)}")
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not 0 < weight <= float_info.max or (fair_by is None and weight != 1):
        raise InvalidCall(f"weight must be a number above 0, together with fair_by; got {shown(weight)}")
    return None if priority == 0 and fair_by is None else Order(priority, fair_by or "", float(weight))


class Caller:
    """A caller of a limiter. Each method has its result at once, or returns an awaitable of it."""

    __slots__ = ("_limit", "_limiter", "calls", "cost", "key", "order")

    def __init__(
        self,
        limiter: Any,  # noqa: ANN401 - of either kind
        key: str,
        cost: Cost,
        limit: Given | None,
        order: Order | None = None,
    ) -> None:
        self._limiter, self.key, self.cost, self._limit, self.order = limiter, key, cost, limit, order
        self.calls: tuple[Call, ...] = ()
        """The calls of a caller that asks about several subjects."""

    def about(self, calls: tuple[Call, ...]) -> Self:
        """Ask about these calls, all or none."""
        if self._limiter.pausable:
            raise InvalidCall("acquire_all does not know pauses: use a limiter without pausable=True")
        self.calls = calls
        return self

    @property
    def units(self) -> int:
        """The cost as a number; costs by name count as 0."""
        return self.cost if isinstance(self.cost, int) else 0

    def ask(self, wait_us: int) -> Any:  # noqa: ANN401
        """Reserve the cost if it fits within this time; return the decision."""
        if self.calls:
            return self._limiter._decide(self.calls, RESERVE, wait_us)
        return self._limiter._reserve(self.key, self.cost, wait_us, self._limit)

    def look(self, cost: Cost) -> Any:  # noqa: ANN401
        """Peek at a cost; return the decision."""
        return self._limiter.peek(self.key, cost, limit=self._limit)

    def paused(self) -> Any:  # noqa: ANN401
        """Return the seconds that are left of the pause of the key."""
        return self._limiter.paused(self.key)

    def count(self, decision: Decision) -> Decision:
        """Count the answer that the caller gets, whatever was asked on the way to it."""
        counted: Decision = self._limiter._count(decision, self._limiter._holds_permits)
        return counted

    def give_back(self, decision: Decision) -> Any:  # noqa: ANN401
        """Give back a charge that will not be used."""
        return self._limiter.refund(decision)

    def give_up(self, promise: Promise) -> Any:  # noqa: ANN401
        """Give up a promise that will not be used."""
        return self._limiter._give_up(promise)

    def depart(self, promise: Promise) -> Any:  # noqa: ANN401
        """Wait until the promise may be used, and give it up on an error; return the promise that was kept."""
        raise NotImplementedError

    def sleep_until(self, at_us: int) -> Any:  # noqa: ANN401
        """Sleep until this instant."""
        raise NotImplementedError

    def queue_up(self) -> None:
        """Prepare to be called."""
        raise NotImplementedError

    def wait_for_turn(self, due_us: int | None) -> Any:  # noqa: ANN401
        """Wait until called, or until the instant; return whether the caller was called."""
        raise NotImplementedError

    def call(self) -> None:
        """Wake the caller: it is its turn."""
        raise NotImplementedError
