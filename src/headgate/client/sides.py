"""Threads and event loops: the same calls to limiters, and the same waits, at once or awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from headgate.caches import ClearedWhenFull
from headgate.client.key_state import KeyState
from headgate.client.line import Call, Line
from headgate.client.pacing import ANY_RATE, large_enough
from headgate.clock import SECOND, Clock
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.limiter.async_ import AsyncLimiter
from headgate.steps import Steps, run, run_awaiting, running_loop
from headgate.stores import OnError, Store
from headgate.waiting import sleep_until
from headgate.waiting.timers import Timers

MOST_LIMITERS: Final = 256
"""The most combinations of limits that stay bound; keys of one server have the same."""

Costs = Mapping[str, int]


class Side(Protocol):
    """What a call needs from threads or from an event loop. Each result may be awaitable."""

    clock: Clock

    def reserve(self, paces: tuple[Limit, ...], key: str, costs: Costs, max_wait: float) -> Any:  # noqa: ANN401
        """Return a reservation."""

    def fit(self, windows: tuple[Limit, ...], rooms: tuple[Limit, ...], key: str, costs: Costs) -> Any:  # noqa: ANN401
        """Return a reservation in windows of which only these rooms may be used."""

    def owe(self, windows: tuple[Limit, ...], key: str, costs: Costs) -> Any:  # noqa: ANN401
        """Charge windows what a call took beyond its reservation."""

    def calm_hit(self, state: KeyState) -> Callable[[str], Any]:
        """Return the function that decides over a call of a key that is calm, and keep it in the state."""

    def hit_here(self, pace: Limit, key: str) -> Any:  # noqa: ANN401
        """Return the decision over a pace of this process alone."""

    def pause(self, paces: tuple[Limit, ...], key: str, seconds: float) -> Any:  # noqa: ANN401
        """Pause a key for every process of the store."""

    def paused(self, paces: tuple[Limit, ...], key: str) -> Any:  # noqa: ANN401
        """Return the seconds that are left of a pause."""

    def sleep(self, seconds: float) -> Any:  # noqa: ANN401
        """Wait."""

    def run(self, steps: Steps[None]) -> Any:  # noqa: ANN401
        """Take steps at once, or return a coroutine that takes them."""

    def enter(self, line: Line, ticket: int, timeout: float | None) -> Any:  # noqa: ANN401
        """Return True when this call is let into a line; False after the timeout."""


class _Sides:
    """The common base: one limiter for each combination of limits."""

    def __init__(self, store: Store, here: Store, namespace: str, on_error: OnError) -> None:
        self.clock = store.clock
        self._store, self._namespace, self._on_error = store, namespace, on_error
        self._limiters: ClearedWhenFull[tuple[str, ...], Any] = ClearedWhenFull(MOST_LIMITERS)
        self._here: Any = self._kind(ANY_RATE, store=here)

    _kind: Any
    """The class of the limiters."""

    def _limiter(self, paces: tuple[Limit, ...]) -> Any:  # noqa: ANN401
        identity = tuple([pace.identity for pace in paces])
        return self._limiters.get(identity) or self._limiters.keep(
            identity,
            self._kind(*paces, store=self._store, namespace=self._namespace, on_error=self._on_error, pausable=True),
        )

    def reserve(self, paces: tuple[Limit, ...], key: str, costs: Costs, max_wait: float) -> Any:  # noqa: ANN401
        """Return a reservation."""
        limiter = self._limiter(paces)
        if not costs:
            return limiter.reserve(key, 1, max_wait, limit=None if limiter.limits == paces else paces)
        chosen = tuple([large_enough(pace, costs.get(pace.name, 1)) for pace in paces])
        known = {pace.name: min(costs.get(pace.name, 1), pace.burst) for pace in chosen}
        return limiter.reserve(key, known, max_wait, limit=None if limiter.limits == chosen else chosen)

    def fit(self, windows: tuple[Limit, ...], rooms: tuple[Limit, ...], key: str, costs: Costs) -> Any:  # noqa: ANN401
        """Return a reservation in windows of which only these rooms may be used."""
        fitting = {room.name: min(costs[room.name], room.amount) for room in rooms}
        return self._limiter(windows).reserve(key, fitting, 0, limit=rooms)

    def owe(self, windows: tuple[Limit, ...], key: str, costs: Costs) -> Any:  # noqa: ANN401
        """Charge windows what a call took beyond its reservation."""
        return self._limiter(windows).hit(key, costs)

    def _hit(self, paces: tuple[Limit, ...]) -> Callable[[str], Any]:
        limiter = self._limiter(paces)
        hit: Callable[[str], Any] = limiter.hit if limiter.limits == paces else partial(limiter.hit, limit=paces)
        return hit

    def hit_here(self, pace: Limit, key: str) -> Any:  # noqa: ANN401
        """Return the decision over a pace of this process alone."""
        return self._here.hit(key, limit=pace)

    def pause(self, paces: tuple[Limit, ...], key: str, seconds: float) -> Any:  # noqa: ANN401
        """Pause a key for every process of the store."""
        return self._limiter(paces).pause(key, seconds)

    def paused(self, paces: tuple[Limit, ...], key: str) -> Any:  # noqa: ANN401
        """Return the seconds that are left of a pause."""
        return self._limiter(paces).paused(key)


class Threads(_Sides):
    """Calls of threads."""

    _kind = Limiter
    run = staticmethod(run)

    def calm_hit(self, state: KeyState) -> Callable[[str], Any]:
        """Return the function that decides over a call of a key that is calm, and keep it in the state."""
        state.hit_in_threads = hit = self._hit(state.learned.paces)
        return hit

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""
        clock = self._store.clock
        sleep_until(clock, clock.now_us() + round(seconds * SECOND))

    def enter(self, line: Line, ticket: int, timeout: float | None) -> bool:
        """Return True when this call is let into a line, or False after the timeout."""
        entered = threading.Event()

        def call() -> bool:
            entered.set()
            return True

        if line.enter(ticket, call):
            return True
        came = False
        try:
            came = entered.wait(timeout)
        finally:
            if not came:
                line.give_up(ticket)
        return came


class Loops(_Sides):
    """Calls of event loops."""

    _kind = AsyncLimiter
    run = staticmethod(run_awaiting)

    def __init__(self, store: Store, here: Store, namespace: str, on_error: OnError) -> None:
        super().__init__(store, here, namespace, on_error)
        self._timers = Timers(store.clock)

    def calm_hit(self, state: KeyState) -> Callable[[str], Any]:
        """Return the function that decides over a call of a key that is calm, and keep it in the state."""
        state.hit_in_loops = hit = self._hit(state.learned.paces)
        return hit

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait in the running event loop."""
        clock = self._store.clock
        return self._timers.here().wait_until(clock.now_us() + round(seconds * SECOND))

    async def enter(self, line: Line, ticket: int, timeout: float | None) -> bool:
        """Return True when this call is let into a line, or False after the timeout."""
        loop = running_loop()
        entered: asyncio.Future[None] = loop.create_future()
        call = _caller(loop, entered)
        if line.enter(ticket, call, loop.is_closed):
            return True
        came = False
        try:
            async with asyncio.timeout(timeout):
                await entered
            came = True
        except TimeoutError:
            return False
        finally:
            if not came:
                line.give_up(ticket)
        return True


def _caller(loop: asyncio.AbstractEventLoop, entered: asyncio.Future[None]) -> Call:
    """Return a function that any thread may call to end the wait for a future."""

    def arrive() -> None:
        if not entered.done():
            entered.set_result(None)

    def call() -> bool:
        try:
            loop.call_soon_threadsafe(arrive)
        except RuntimeError:  # the loop is closed, and its callers are gone
            return False
        return True

    return call
