"""`AsyncLimiter`: the same words, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Self

from headgate.call import Call, Cost, checked_key
from headgate.engine import Decision, pending
from headgate.engine.holding import Holding
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.guard import AsyncGuard, AsyncSlot, Key
from headgate.limiter.permit import AsyncPermit
from headgate.limiter.promises import Promise, depart
from headgate.limiter.reservation import AsyncReservation
from headgate.limiter.wait_queue import Ask, Depart, GiveBack, GiveUp, Look, Sleep, Step, Steps, Turn, checked_wait
from headgate.stores import AsyncStore, Store
from headgate.stores.contract import AsyncLeased, LeasingStore
from headgate.waiting.timers import Timers


class AsyncLimiter(BaseLimiter):
    """As `Limiter`; every method that decides is a coroutine."""

    _unfinished: set[asyncio.Task[None]]

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        super().bind(store)
        self._unfinished = set()
        self._hit = self._gate.hit
        self._by_key = self._queue.by_key
        self._timers = Timers(store.clock)
        self._async_gate: Any = self._gate
        self._awaited = isinstance(store, AsyncStore)
        if isinstance(store, AsyncStore):  # a store that has to be waited for brings its own coroutines
            self._async_gate = self._open_async_gate(store)
        for name in ("hit", "peek", "take_up_to", "decide", "reset", "holders", "acquire", "reserve"):
            method = getattr(type(self), name).__get__(self)
            if name in ("acquire", "reserve"):
                setattr(self, name, pending(method, method, True))
            else:
                setattr(self, name, pending(method, getattr(self._async_gate, name), self._awaited))

    def _open_async_gate(self, store: AsyncStore) -> Any:  # noqa: ANN401
        if self.lease and isinstance(store, LeasingStore):
            return store.async_leased_gate(self.namespace, self.limits, self.on_error, self.lease)
        return store.async_gate(self.namespace, self.limits, self.on_error)

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses."""
        return self._hit(key, cost) if limit is None else self._hit(key, cost, limit=limit)

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer. Writes nothing."""
        return self._gate.peek(key, cost, limit=limit)

    async def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much."""
        return self._gate.take_up_to(key, n, limit=limit)

    async def acquire(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and whoever comes when `max_waiting` wait already. Cancelled, it leaves
        nothing charged.
        """
        if timeout is None and limit is None and not self._queue.waiting and not self._awaited:
            decision = self._hit(key, cost)
            if decision.allowed:
                return decision
        return await self._acquire(key, cost, timeout, limit)

    async def _acquire(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        queue = self._queue
        due = queue.due(timeout)
        if checked_key(key) in queue.by_key:
            return await self._wait(key, cost, limit, queue.wait_turn(key, cost, due, _Waiter(cost)))
        wait = queue.longest if timeout is None else min(queue.longest, checked_wait(timeout))
        decision = await self._reserve(key, cost, wait, limit)
        return await self._wait(key, cost, limit, queue.finish(key, cost, due, decision, lambda: _Waiter(cost)))

    async def _reserve(self, key: str, cost: Cost, wait_us: int, limit: Given | None) -> Decision:
        given = self._async_gate.reserve(key, cost, wait_us, limit)
        decision: Decision = await given if self._awaited else given
        return decision

    async def _wait(self, key: str, cost: Cost, limit: Given | None, steps: Steps) -> Decision:
        """Do what the queue says, in this event loop."""
        try:
            step = next(steps)
            while True:
                try:
                    done = await self._do(key, cost, limit, step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            decision: Decision = end.value
            return decision

    async def _do(self, key: str, cost: Cost, limit: Given | None, step: Step) -> Decision | Promise | bool | None:
        match step:
            case Ask(wait_us):
                return await self._reserve(key, cost, wait_us, limit)
            case Look(units):
                return await self.peek(key, units or cost, limit=limit)
            case Sleep(at_us):
                await self._timers.here().wait_until(at_us)
            case Turn(_Waiter() as waiter, due_us):
                called = await (waiter.turn if due_us is None else self._timers.here().wait_for(waiter.turn, due_us))
                if waiter.turn.done():
                    waiter.turn = asyncio.get_running_loop().create_future()  # it may be called again
                return called
            case GiveBack(decision):
                await self.refund(decision)
            case GiveUp(promise):
                await self._give_up(promise)
            case Depart(promise):
                return await depart(self._timers.here(), promise, self._give_up)
        return None

    async def _give_up(self, promise: Promise) -> None:
        promise.given_up = True
        if self._awaited:
            await self._finish(self._give_back(promise))
        else:
            for freed in self._queue.promises.free(promise):
                self._gate.refund(freed.decision)

    async def _give_back(self, promise: Promise) -> None:
        await asyncio.sleep(0)  # others whom a server has answered together give up too: the last of them is the first
        for freed in self._queue.promises.free(promise):
            await self._async_gate.refund(freed.decision)

    async def _abandon(self, decision: Decision) -> None:
        """Give back what was decided after its caller was cancelled."""
        if decision.allowed and decision.retry_us:
            await self._give_up(self._queue.promise(decision))
        else:
            await self._async_gate.refund(decision)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """See it through even if who asked for it is cancelled meanwhile."""
        if not self._awaited:
            return await work  # which never lets go
        task = asyncio.get_running_loop().create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    def slot(self, key: str, cost: Cost = 1, timeout: float | None = None) -> AsyncSlot:
        """An async context manager that acquires; raises `RateLimited` where that is refused."""
        return AsyncSlot(self, key, cost, timeout)

    async def reserve(
        self, key: str, cost: Cost = 1, max_wait: float | None = None, *, limit: Given | None = None
    ) -> AsyncReservation:
        """Charge now what may be used after a delay of at most `max_wait` seconds (default: an hour).

        Windows, logs and blocks cannot promise a delay: they reserve what fits now.
        """
        decision = await self._reserve(key, cost, self._promise(max_wait), limit)
        return AsyncReservation(self, decision, self._timers)

    async def decide(self, *calls: Call) -> Decision:
        """Several limits and subjects, one decision: every call is charged or none is."""
        return self._gate.decide(*calls)

    async def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if charged now."""
        if self._awaited:
            await self._async_gate.refund(charged, n)  # to its end, also where this is cancelled
        else:
            self._gate.refund(charged, n)
        if self._by_key and not isinstance(charged, str):
            self._queue.wake(charged)

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0) -> AsyncPermit:
        """Spend, and hold what is in flight until the permit ends: `async with limiter.permit("k"):`, or awaited.

        With a `timeout` it waits for that, first come, first served; None waits as long as it takes.
        """
        return AsyncPermit(self, key, cost, timeout)

    async def _permitted(self, key: str, cost: Cost, timeout: float | None) -> Decision:
        if timeout == 0 and not self._by_key and not self._awaited:
            return self._hit(key, cost)
        return await self._acquire(key, cost, timeout, None)

    async def release(self, decision: Decision) -> None:
        """Give back what a decision has in flight, at most once; its rates stay charged. A permit does this itself."""
        if self._awaited:
            await self._async_gate.release(decision)
        else:
            self._gate.release(decision)
        if self._by_key:
            self._queue.wake(decision)

    async def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        return self._gate.holders(key)

    async def reset(self, key: str) -> None:
        """Make the key as new."""
        self._gate.reset(key)

    def guard(self, key: Key, cost: Cost = 1) -> AsyncGuard:
        """A decorator of `async def` or an async context manager that raises `RateLimited`."""
        return AsyncGuard(self, key, cost)

    async def aclose(self) -> None:
        """Give back leases, and let go of a store that this limiter opened itself; as `async with` does at its end."""
        if isinstance(self._async_gate, AsyncLeased):
            await self._async_gate.aclose()
        if self._owned and isinstance(self._opened, AsyncStore):
            await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Waiter:
    """A task that waits."""

    __slots__ = ("cost", "turn")

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def call(self) -> None:
        loop = self.turn.get_loop()
        if loop is _running_loop():
            self._tell()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.turn.done():
            self.turn.set_result(True)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
