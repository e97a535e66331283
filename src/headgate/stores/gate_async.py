"""The verbs of `Gate`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from headgate.call import Call, Cost, checked_cost, checked_key
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO, Decision, pending
from headgate.errors import StoreError
from headgate.limit import Given, Limit
from headgate.steps import kept, start
from headgate.stores.arguments import Holding, in_flight_of, listed
from headgate.stores.contract import AsyncStore, Costs, Keys, LeasingStore, Store
from headgate.stores.gate import COUNTED, BaseGate
from headgate.stores.placed import bind_placed

T = TypeVar("T")
AWAITED: Final = ("hit", "peek", "take_up_to", "decide", "reset", "holders", "pause", "paused")
"""Verbs whose calls raise or warn when they are not awaited."""


class AsyncGate(BaseGate[Any, Awaitable[Decision]]):
    """The gate for event loops. A store that need not be awaited is asked directly."""

    _undo: Callable[[Decision], Awaitable[None]] | None = None
    """Gives back a charge whose caller was cancelled, if a refund is not enough."""
    _awaits: bool
    """Whether the store must be awaited."""

    def _use(self, store: Store) -> None:
        self._hot: dict[str, Any] = {}
        super()._use(store)
        self._hot = {**self._asked_directly(), **self._hot}
        self._carry({name: self._pending(name, self._hot.get(name)) for name in AWAITED})

    def _pending(self, name: str, hot: Any = None) -> Any:  # noqa: ANN401
        """Return a method whose calls tell if they are not awaited, answered by `hot` if there is one."""
        method = type(self)._own[name].__get__(self)
        return pending(method, hot or method, hot is None or self._awaits)

    def _asked_directly(self) -> dict[str, Callable[..., Awaitable[Decision]]]:
        """Return the hot verbs of a store that is awaited, with one coroutine less than the methods have."""
        if not self._awaits:
            return {}

        def hit(key: str, cost: Cost = 1, *, limit: Given | None = None) -> Awaitable[Decision]:
            return self._ask(key, cost, limit, TAKE)

        def take_up_to(key: str, n: int, *, limit: Given | None = None) -> Awaitable[Decision]:
            return self._ask(key, checked_cost(n), limit, UP_TO)

        return {"hit": hit, "take_up_to": take_up_to}

    def _bind_own(self, store: Store) -> Any:  # noqa: ANN401 - of either kind
        self._awaits = isinstance(store, AsyncStore)
        if self._lease and isinstance(store, LeasingStore):
            bound: Any = store.bind_leased_async(self.namespace, self.limits, self._lease)
        else:
            bound = self._bound_to(self.limits + self._guard)
        attach = getattr(bound, "attach", None)
        if attach is not None:
            hit = type(self)._own["hit"].__get__(self)
            self._hot = dict(attach(hit, self._plan, self._end_at_once, self._tally))
        return bound

    def _bind(self, limits: tuple[Limit, ...]) -> Any:  # noqa: ANN401
        store = self.store
        if isinstance(store, AsyncStore):
            bind: Callable[[tuple[Limit, ...]], Any] = lambda placed: store.bind_async(self.namespace, placed)  # noqa: E731
        else:
            bind = lambda placed: self._answering(store.bind(self.namespace, placed))  # noqa: E731
        return bind_placed(store.clock, self.namespace, limits, bind)

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses."""
        return await self._ask(key, cost, limit, TAKE)

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Return the decision that `hit` would return. Writes nothing."""
        return await self._ask(key, cost, limit, PEEK)

    async def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much."""
        return await self._ask(key, checked_cost(n), limit, UP_TO)

    async def decide(self, *calls: Call) -> Decision:
        """Decide over several limits and keys at once: every call is charged or none is."""
        return await self._decide(calls, pausable=bool(self._guard))

    async def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if they were charged now."""
        await self._refund(charged, n)
        if not isinstance(charged, str):
            self._wake(charged)

    async def release(self, decision: Decision) -> None:
        """Give back the units in flight of a decision, at most once; rates stay charged. A permit does this itself."""
        await self._refund(decision, in_flight_of(decision))
        self._wake(decision)

    async def holders(self, key: str) -> list[Holding]:
        """Return the permits in flight of a key, the oldest first."""
        held = self._bound.holders(checked_key(key))
        return listed(self.limits, await held if self._awaits else held)

    async def reset(self, key: str) -> None:
        """Forget all counts of a key, and end its pause."""
        cleared = self._bound.clear(checked_key(key))
        if self._awaits:
            await cleared

    async def pause(self, key: str, seconds: float) -> None:
        """Refuse every call of a key for this time, in every process of the store; needs `pausable=True`."""
        self._fallback.kept(await self._pause(key, seconds))

    async def paused(self, key: str) -> float:
        """Return the seconds that are left of the pause of a key; 0.0 if it is not paused. Writes nothing."""
        return (await self._paused(key)).reset_after

    async def _run(
        self,
        bound: Any,  # noqa: ANN401
        keys: Keys,
        costs: Costs,
        mode: int,
        wait_us: int = 0,
        counted: bool = True,
    ) -> Decision:
        try:
            asked = bound.run(keys, costs, mode, wait_us)
            if not self._awaits:
                decision: Decision = asked
            elif mode == RESERVE or (mode != PEEK and self._holds(bound)):
                # A cancelled caller cannot give back its charge, so the gate does; only a plain rate stays charged.
                decision = await self._to_the_end(asked, self._given_back)
            else:
                decision = await asked
        except StoreError as error:
            decision = self._fallback.decide(bound.limits, keys, costs, mode, wait_us, error)
            if mode == PEEK and hasattr(bound, "with_held"):
                decision = bound.with_held(decision)
        return self._count(decision, self._holds(bound)) if counted and mode in COUNTED else decision

    def _end_at_once(self, decision: Decision) -> None:
        """Release on a store that is not awaited."""
        for bound, keys, units, marks in self._given(decision, in_flight_of(decision)):
            bound.give(keys, units, marks)

    async def _refund(self, charged: Decision | str, n: Cost | Costs | None = None) -> None:
        for bound, keys, units, marks in self._given(charged, n):
            try:
                given = bound.give(keys, units, marks)
                if self._awaits:
                    await self._to_the_end(given, self._seen_through)
            except StoreError as error:
                self._fallback.regret(error)

    async def _to_the_end(
        self, work: Coroutine[Any, Any, T], finish: Callable[[asyncio.Task[T]], Coroutine[Any, Any, None]]
    ) -> T:
        """Wait for work that is not cancelled with its caller; if the caller is cancelled, `finish` gets the task."""
        task = start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                kept(start(finish(task)))
            raise

    async def _given_back(self, deciding: asyncio.Task[Decision]) -> None:
        """Give back the charge of a caller that was cancelled meanwhile."""
        with suppress(StoreError):
            await (self._undo or self._refund)(await deciding)

    async def _seen_through(self, giving: asyncio.Task[None]) -> None:
        with suppress(StoreError):
            await giving
