"""Stores for tests: one that can be made to fail, and one whose answers take a turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate import MemoryStore
from headgate.engine.modes import TAKE
from headgate.errors import StoreError
from headgate.testing import ManualClock


class Interposed(MemoryStore):
    """A store in memory; `asked` sees every question first, and may raise."""

    def asked(self, keys: Any, costs: Any, mode: int) -> None:
        """Nothing stands in the way."""

    def bind(self, namespace: str, limits: Any) -> Any:
        return InterposedLimits(self, super().bind(namespace, limits))


class InterposedLimits:
    def __init__(self, store: Interposed, bound: Any) -> None:
        self._store, self._bound = store, bound
        self.limits, self.give, self.clear, self.holders = bound.limits, bound.give, bound.clear, bound.holders

    def run(self, keys: Any, costs: Any, mode: int = TAKE, wait: int = 0) -> Any:
        self._store.asked(keys, costs, mode)
        return self._bound.run(keys, costs, mode, wait)


class Failing(Interposed):
    """Raises its `fault` while it has one, after it has answered `answers` questions."""

    def __init__(self, fault: Exception | None = None, answers: int = 0, clock: Any = None) -> None:
        super().__init__(clock=clock or ManualClock(1_000_000_000.0))
        self.fault, self.answers = fault, answers

    def asked(self, keys: Any, costs: Any, mode: int) -> None:
        if self.fault is not None:
            self.answers -= 1
            if self.answers < 0:
                raise self.fault


def away(answers: int = 0, clock: Any = None) -> Failing:
    """A store that cannot be reached, from the first question or from a later one on."""
    return Failing(StoreError("the cable was cut"), answers, clock)


class Slow:
    """A store whose answers take a turn of the event loop."""

    decides_by_clock = True

    def __init__(self, inner: MemoryStore) -> None:
        self.inner, self.clock = inner, inner.clock

    def bind(self, namespace: str, limits: Any) -> Any:
        return self.inner.bind(namespace, limits)

    def bind_async(self, namespace: str, limits: Any) -> Any:
        return SlowLimits(self, self.inner.bind(namespace, limits))

    def clear(self, namespace: str) -> None:
        self.inner.clear(namespace)

    async def asked(self) -> None:
        """Before each decision."""
        await asyncio.sleep(0)

    async def given(self) -> None:
        """Before something is given back."""
        await asyncio.sleep(0)

    async def aclose(self) -> None: ...


class SlowLimits:
    def __init__(self, store: Slow, bound: Any) -> None:
        self._store, self._bound, self.limits = store, bound, bound.limits

    async def run(self, keys: Any, costs: Any, mode: int = TAKE, wait: int = 0) -> Any:
        await self._store.asked()
        return self._bound.run(keys, costs, mode, wait)

    async def give(self, keys: Any, units: Any, marks: Any) -> None:
        await self._store.given()
        self._bound.give(keys, units, marks)

    async def clear(self, key: str) -> None:
        self._bound.clear(key)

    async def holders(self, key: str) -> Any:
        return self._bound.holders(key)

    async def records(self, key: str) -> Any:
        return self._bound.records(key)
