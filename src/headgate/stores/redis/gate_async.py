"""Gates that are awaited: the same questions by the pipelines of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from headgate.call import Call, Cost, checked_cost, checked_key
from headgate.engine import Decision
from headgate.engine.arguments import checked_calls, checked_limits, in_flight_of
from headgate.engine.holding import Holding
from headgate.engine.modes import PEEK, RESERVE, TAKE, UP_TO
from headgate.errors import StoreError
from headgate.limit import Given, Limit
from headgate.stores.redis.compiled import CompiledLimits
from headgate.stores.redis.connect import FAILURES
from headgate.stores.redis.cross_slot import Steps
from headgate.stores.redis.gate import _Asker
from headgate.stores.redis.pipeline import Pipelines

T = TypeVar("T")
Finish = Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, None]]
"""What becomes of steps whose caller was cancelled."""


class AsyncGate(_Asker):
    """Asks by the pipelines of the event loop that runs."""

    pipelines: Callable[[], Pipelines]
    abandon: Callable[[Decision], Awaitable[None]] | None = None
    """Gives back a decision whose caller was cancelled, where more has to be known than the decision."""
    _kept: set[asyncio.Task[None]]

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        return await self._decided(self._own, self._ask(key, cost, limit, TAKE))

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        return await self._run(self._ask(key, cost, limit, PEEK))

    async def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much as fits now."""
        return await self._decided(self._own, self._ask(key, checked_cost(n), limit, UP_TO))

    async def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        return await self._run(self._ask(key, cost, limit, RESERVE, wait), self._give_back)

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[tuple[str, ...], tuple[int, ...]], Awaitable[Decision]]:
        """`decide` over these limits again and again."""
        compiled = self.remembered(checked_limits(limits))
        return lambda keys, costs: self._decided(compiled, self._decide(compiled, keys, costs, TAKE))

    async def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is; with a wait also for later."""
        limits, keys, costs = checked_calls(calls)
        mode = PEEK if peek else RESERVE if wait_us else TAKE
        compiled = self.remembered(limits)
        return await self._decided(compiled, self._decide(compiled, keys, costs, mode, wait_us))

    async def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back."""
        await self._run(self._refund(charged, n), self._see_through)

    async def release(self, decision: Decision) -> None:
        """Give back what a decision has in flight; rates stay charged."""
        await self._run(self._refund(decision, in_flight_of(decision)), self._see_through)

    async def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        return await asyncio.to_thread(self._holders, checked_key(key))  # for operators: nobody waits for it often

    async def reset(self, key: str) -> None:
        """Make a key as new."""
        await self._run(self._reset(key))

    async def _run(
        self, steps: Steps[T], finish: Finish[T] | None = None, asked: Awaitable[tuple[Any, int]] | None = None
    ) -> T:
        """Run steps, from this answer on where the first question was asked already.

        Who is cancelled meanwhile leaves the rest to `finish`; without it, a decision over several slots gives back
        what it holds before it lets go.
        """
        try:
            command = next(steps) if asked is None else None
            pipelines = self.pipelines()
            while True:
                try:
                    if command is not None:
                        asked = pipelines.exchange(command)
                    if finish is not None:
                        asked = asyncio.ensure_future(asked)  # type: ignore[arg-type]
                        reply = await asyncio.shield(asked)
                    else:
                        reply = await asked  # type: ignore[misc]
                except asyncio.CancelledError:
                    if finish is None:
                        await asyncio.shield(self._let_go(steps, pipelines))
                    else:
                        self._keep(pipelines.loop.create_task(finish(self._run(steps, None, asked))))
                    raise
                except FAILURES as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(reply)
        except StopIteration as done:
            value: T = done.value
            return value

    def _decided(self, compiled: CompiledLimits, steps: Steps[Decision]) -> Awaitable[Decision]:
        """Of a caller that is cancelled meanwhile a rate stays charged; what is in flight nobody else would end."""
        return self._run(steps, self._give_back) if compiled.in_flight else self._run(steps)

    async def _give_back(self, deciding: Awaitable[Decision]) -> None:
        """Nobody knows of a charge whose caller was cancelled meanwhile."""
        with suppress(StoreError):
            await (self.abandon or self.refund)(await deciding)

    async def _see_through(self, giving: Awaitable[None]) -> None:
        """What was to be given back is, also when nobody waits for it any more."""
        with suppress(StoreError):
            await giving

    def _keep(self, task: asyncio.Task[None]) -> None:
        """The event loop itself holds tasks only weakly."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    async def _let_go(self, steps: Steps[T], pipelines: Pipelines) -> None:
        try:
            command = steps.throw(asyncio.CancelledError())
            while True:
                try:
                    command = steps.send(await pipelines.exchange(command))
                except FAILURES as error:
                    command = steps.throw(error)
        except (StopIteration, asyncio.CancelledError):
            return
