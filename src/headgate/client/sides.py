"""Threads and event loops: the same calls to limiters, and the same waits, at once or awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from headgate.caches import ClearedWhenFull
from headgate.client.first_answer import FirstAnswer
from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.limiter.async_ import AsyncLimiter
from headgate.stores import OnError, Store
from headgate.waiting import sleep_until
from headgate.waiting.timers import Timers

MOST_LIMITERS: Final = 256
"""The most combinations of limits that stay bound; keys of one server have the same."""

Costs = Mapping[str, int]


class Side(Protocol):
    """What a call needs from threads or from an event loop. Each result may be awaitable."""

    def reserve(self, paces: tuple[Limit, ...], key: str, costs: Costs, max_wait: float | None) -> Any:  # noqa: ANN401
        """Return a reservation."""

    def pause(self, paces: tuple[Limit, ...], key: str, seconds: float) -> Any:  # noqa: ANN401
        """Pause a key for every process of the store."""

    def paused(self, paces: tuple[Limit, ...], key: str) -> Any:  # noqa: ANN401
        """Return the seconds that are left of a pause."""

    def sleep(self, seconds: float) -> Any:  # noqa: ANN401
        """Wait."""

    def first(self, answer: FirstAnswer, timeout: float | None) -> Any:  # noqa: ANN401
        """Return True when this call may be sent: at once, or once another was answered; False after the timeout."""


class _Sides:
    """The common base: one limiter for each combination of limits."""

    def __init__(self, store: Store, namespace: str, on_error: OnError) -> None:
        self._store, self._namespace, self._on_error = store, namespace, on_error
        self._limiters: ClearedWhenFull[tuple[str, ...], Any] = ClearedWhenFull(MOST_LIMITERS)

    def _limiter(self, paces: tuple[Limit, ...]) -> Any:  # noqa: ANN401
        identity = tuple([pace.identity for pace in paces])
        found = self._limiters.get(identity)
        return found if found is not None else self._limiters.keep(identity, self._bind(paces))

    def _bind(self, paces: tuple[Limit, ...]) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def reserve(self, paces: tuple[Limit, ...], key: str, costs: Costs, max_wait: float | None) -> Any:  # noqa: ANN401
        """Return a reservation."""
        limiter = self._limiter(paces)
        plan = None if limiter.limits == paces else paces
        known = {pace.name: min(costs.get(pace.name, 1), pace.burst) for pace in paces}
        return limiter.reserve(key, known, max_wait, limit=plan)

    def pause(self, paces: tuple[Limit, ...], key: str, seconds: float) -> Any:  # noqa: ANN401
        """Pause a key for every process of the store."""
        return self._limiter(paces).pause(key, seconds)

    def paused(self, paces: tuple[Limit, ...], key: str) -> Any:  # noqa: ANN401
        """Return the seconds that are left of a pause."""
        return self._limiter(paces).paused(key)


class Threads(_Sides):
    """Calls of threads."""

    def _bind(self, paces: tuple[Limit, ...]) -> Limiter:
        return Limiter(*paces, store=self._store, namespace=self._namespace, on_error=self._on_error, pausable=True)

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""
        clock = self._store.clock
        sleep_until(clock, clock.now_us() + round(seconds * SECOND))

    def first(self, answer: FirstAnswer, timeout: float | None) -> bool:
        """Return True when this call may be sent, or False after the timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            called = threading.Event()
            if answer.ask(called.set):
                return True
            came = False
            try:
                came = called.wait(None if until is None else max(0.0, until - time.monotonic()))
            finally:
                if not came:
                    answer.leave(called.set)
            if not came:
                return False


class Loops(_Sides):
    """Calls of event loops."""

    def __init__(self, store: Store, namespace: str, on_error: OnError) -> None:
        super().__init__(store, namespace, on_error)
        self._timers = Timers(store.clock)

    def _bind(self, paces: tuple[Limit, ...]) -> AsyncLimiter:
        return AsyncLimiter(
            *paces, store=self._store, namespace=self._namespace, on_error=self._on_error, pausable=True
        )

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait in the running event loop."""
        clock = self._store.clock
        return self._timers.here().wait_until(clock.now_us() + round(seconds * SECOND))

    async def first(self, answer: FirstAnswer, timeout: float | None) -> bool:
        """Return True when this call may be sent, or False after the timeout."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            turn: asyncio.Future[None] = loop.create_future()
            call = _caller(loop, turn)
            if answer.ask(call):
                return True
            came = False
            try:
                await asyncio.wait_for(turn, None if until is None else until - loop.time())
                came = True
            except TimeoutError:
                return False
            finally:
                if not came:
                    answer.leave(call)


def _caller(loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function that any thread may call to end the wait for a future."""

    def arrived() -> None:
        if not turn.done():
            turn.set_result(None)

    def call() -> None:
        try:
            loop.call_soon_threadsafe(arrived)
        except RuntimeError:  # the loop is closed, and its callers are gone
            return

    return call
