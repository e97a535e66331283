"""Guards: limits around functions and blocks, for those who want a no to raise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from headgate.call import Cost
from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter
    from headgate.limiter.sync import Limiter

P = ParamSpec("P")
R = TypeVar("R")
Key = str | Callable[..., str]


def _key_of(key: Key, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    return key(*args, **kwargs) if callable(key) else key


def _passed(decision: Decision) -> Decision:
    if not decision:
        raise RateLimited(decision)
    return decision


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    if not callable(function):
        raise InvalidCall(
            f"a guard decorates functions and needs a key first, as in @limiter.guard('k'); got {function!r}"
        )
    if inspect.isasyncgenfunction(function):
        raise InvalidCall(f"{function!r} is an async generator: guard what iterates over it instead")
    return function


class Guard:
    """`@limiter.guard(key)` or `with limiter.guard("u1") as decision:`; raises RateLimited."""

    def __init__(self, limiter: Limiter, key: Key, cost: Cost) -> None:
        self._limiter, self._key, self._cost = limiter, key, cost

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, asking first."""
        if inspect.iscoroutinefunction(_checked(function)):
            raise InvalidCall(
                f"{function!r} is async: guard it with an AsyncLimiter, or its calls would not be awaited"
            )

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            _passed(self._limiter.hit(_key_of(self._key, args, kwargs), self._cost))
            return function(*args, **kwargs)

        return guarded

    def __enter__(self) -> Decision:
        return _passed(self._limiter.hit(_fixed(self._key), self._cost))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was spent stays spent."""


class AsyncGuard:
    """`@limiter.guard(key)` on `async def`, or `async with limiter.guard("u1") as decision:`; raises RateLimited."""

    def __init__(self, limiter: AsyncLimiter, key: Key, cost: Cost) -> None:
        self._limiter, self._key, self._cost = limiter, key, cost

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The coroutine function, asking first."""
        if not inspect.iscoroutinefunction(_checked(function)):
            raise InvalidCall(f"{function!r} is not an async def: an AsyncLimiter guards those; use a Limiter here")

        @functools.wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> object:
            _passed(await self._limiter.hit(_key_of(self._key, args, kwargs), self._cost))
            return await cast("Awaitable[object]", function(*args, **kwargs))

        return cast("Callable[P, R]", guarded)

    async def __aenter__(self) -> Decision:
        return _passed(await self._limiter.hit(_fixed(self._key), self._cost))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was spent stays spent."""


class Slot:
    """`with limiter.slot("u1", timeout=2) as decision:` waits for its turn; raises RateLimited."""

    def __init__(self, limiter: Limiter, key: str, cost: Cost, timeout: float | None) -> None:
        self._limiter, self._key, self._cost, self._timeout = limiter, key, cost, timeout

    def __enter__(self) -> Decision:
        return _passed(self._limiter.acquire(self._key, self._cost, self._timeout))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was spent stays spent."""


class AsyncSlot:
    """`async with limiter.slot("u1", timeout=2) as decision:` waits for its turn; raises RateLimited."""

    def __init__(self, limiter: AsyncLimiter, key: str, cost: Cost, timeout: float | None) -> None:
        self._limiter, self._key, self._cost, self._timeout = limiter, key, cost, timeout

    async def __aenter__(self) -> Decision:
        return _passed(await self._limiter.acquire(self._key, self._cost, self._timeout))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was spent stays spent."""


def _fixed(key: Key) -> str:
    if callable(key):
        raise InvalidCall("a guard around a block has no arguments to make a key from; give it the key itself")
    return key
