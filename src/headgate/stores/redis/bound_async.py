"""Limits bound to a server, for event loops: the same steps over the pipelines of the running loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headgate.engine import TAKE, Decision
from headgate.limit import Limit
from headgate.steps import running_loop
from headgate.stores.contract import Costs, Held, Keys, Marks, Record
from headgate.stores.redis.bound import BoundSteps, Space
from headgate.stores.redis.connect import FAILURES
from headgate.stores.redis.cross_slot import Steps
from headgate.stores.redis.pipeline import Pipelines

T = TypeVar("T")


class AsyncBoundLimits(BoundSteps):
    """Bound limits for event loops: a command uses a pipeline of the running loop."""

    def __init__(self, space: Space, limits: tuple[Limit, ...], pipelines: Callable[[], Pipelines]) -> None:
        super().__init__(space, limits)
        self._pipelines = pipelines

    # No `async def` here: each nested coroutine makes a decision a microsecond slower.

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Coroutine[Any, Any, Decision]:
        """Ask every limit in one step, then charge all or none."""
        return self._exchange(self.deciding(keys, costs, mode, wait))

    def give(self, keys: Keys, units: Costs, marks: Marks) -> Coroutine[Any, Any, None]:
        """Give back units that were charged at these marks."""
        return self._exchange(self.giving(keys, units, marks))

    def clear(self, key: str) -> Coroutine[Any, Any, None]:
        """Forget a key under every limit."""
        return self._exchange(self.clearing(key))

    async def holders(self, key: str) -> list[Held]:
        """Return the permits in flight of a key; asked in a thread, since only operators call it."""
        return await running_loop().run_in_executor(None, self.holders_of, key)

    async def records(self, key: str) -> list[Record]:
        """Return the record of a key under each limit; read in a thread, since only operators call it."""
        return await running_loop().run_in_executor(None, self.records_of, key)

    async def _exchange(self, steps: Steps[T]) -> T:
        """Run steps. A decision over several slots that is cancelled first gives back its charges."""
        try:
            command = next(steps)
            pipelines = self._pipelines()
            while True:
                began = time.monotonic()
                try:
                    reply = await pipelines.exchange(command)
                    self.space.topology.health.took(time.monotonic() - began)
                except asyncio.CancelledError:
                    await asyncio.shield(_let_go(steps, pipelines))
                    raise
                except FAILURES as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(reply)
        except StopIteration as done:
            value: T = done.value
            return value


async def _let_go(steps: Steps[T], pipelines: Pipelines) -> None:
    try:
        command = steps.throw(asyncio.CancelledError())
        while True:
            try:
                command = steps.send(await pipelines.exchange(command))
            except FAILURES as error:
                command = steps.throw(error)
    except (StopIteration, asyncio.CancelledError):
        return
