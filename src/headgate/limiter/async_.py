"""`AsyncLimiter`: the same words, awaited."""

from __future__ import annotations

from typing import Self

from headgate.call import Call, Cost
from headgate.engine import Decision
from headgate.limit import Given
from headgate.limiter.base import Bound
from headgate.limiter.guard import AsyncGuard, Key
from headgate.stores import AsyncStore, Store


class AsyncLimiter(Bound):
    """As `Limiter`; every method that decides is a coroutine."""

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        super().bind(store)
        self._hit = self._gate.hit
        if isinstance(store, AsyncStore):  # a store that has to be waited for brings its own coroutines
            gate = store.async_gate(self.namespace, self.limits, self.on_error)
            self.hit, self.peek, self.take_up_to = gate.hit, gate.peek, gate.take_up_to  # type: ignore[method-assign]
            self.decide, self.refund, self.reset = gate.decide, gate.refund, gate.reset  # type: ignore[method-assign]
        else:
            for name in ("hit", "peek", "take_up_to", "decide", "refund", "reset"):
                self.__dict__.pop(name, None)

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses."""
        return self._hit(key, cost) if limit is None else self._hit(key, cost, limit=limit)

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer. Writes nothing."""
        return self._gate.peek(key, cost, limit=limit)

    async def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much."""
        return self._gate.take_up_to(key, n, limit=limit)

    async def decide(self, *calls: Call) -> Decision:
        """Several limits and subjects, one decision: every call is charged or none is."""
        return self._gate.decide(*calls)

    async def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if charged now."""
        self._gate.refund(charged, n)

    async def reset(self, key: str) -> None:
        """Make the key as new."""
        self._gate.reset(key)

    def guard(self, key: Key, cost: Cost = 1) -> AsyncGuard:
        """A decorator of `async def` or an async context manager that raises `RateLimited`."""
        return AsyncGuard(self, key, cost)

    async def aclose(self) -> None:
        """Let go of a store that this limiter opened itself; `async with AsyncLimiter(...) as limiter:` does it too."""
        if self._owned and isinstance(self._opened, AsyncStore):
            await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
