"""Guards: limits around functions and blocks, for those who want a no to raise.

What was spent of a rate stays spent; what is in flight ends with the function or the block.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
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


def _is_coroutine_function(function: Callable[P, R], holds_permits: bool) -> bool:
    """Whether what is to be guarded must be awaited; an error says what cannot be guarded."""
    import inspect  # loaded by those who decorate

    if not callable(function):
        raise InvalidCall(
            f"a guard decorates functions and needs a key first, as in @limiter.guard('k'); got {function!r}"
        )
    if inspect.isasyncgenfunction(function):
        raise InvalidCall(f"{function!r} is an async generator: guard what iterates over it instead")
    if holds_permits and inspect.isgeneratorfunction(function):
        raise InvalidCall(f"{function!r} is a generator, in flight while somebody iterates over it: guard who does")
    return inspect.iscoroutinefunction(function)


class _Block(ABC):
    """`with` around what a limit lets pass."""

    _limiter: Limiter
    _held: list[Decision]

    @abstractmethod
    def _ask(self) -> Decision: ...

    def __enter__(self) -> Decision:
        decision = _passed(self._ask())
        if self._limiter.holds_permits:
            self._held.append(decision)
        return decision

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:  # of several blocks at one time, whichever: they are of one key and one cost
            self._limiter.release(self._held.pop())


class Guard(_Block):
    """`@limiter.guard(key)` or `with limiter.guard("u1") as decision:`; raises RateLimited."""

    def __init__(self, limiter: Limiter, key: Key, cost: Cost) -> None:
        self._limiter, self._key, self._cost = limiter, key, cost
        self._held = []

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, asking first."""
        if _is_coroutine_function(function, self._limiter.holds_permits):
            raise InvalidCall(
                f"{function!r} is async: guard it with an AsyncLimiter, or its calls would not be awaited"
            )

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            decision = _passed(self._limiter.hit(_key_of(self._key, args, kwargs), self._cost))
            try:
                return function(*args, **kwargs)
            finally:
                if self._limiter.holds_permits:
                    self._limiter.release(decision)

        return guarded

    def _ask(self) -> Decision:
        return self._limiter.hit(_fixed(self._key), self._cost)


class Slot(_Block):
    """`with limiter.slot("u1", timeout=2) as decision:` waits for its turn; raises RateLimited."""

    def __init__(self, limiter: Limiter, key: str, cost: Cost, timeout: float | None) -> None:
        self._limiter, self._key, self._cost, self._timeout = limiter, key, cost, timeout
        self._held = []

    def _ask(self) -> Decision:
        return self._limiter.acquire(self._key, self._cost, self._timeout)


class _AsyncBlock(ABC):
    """`async with` around what a limit lets pass."""

    _limiter: AsyncLimiter
    _held: list[Decision]

    @abstractmethod
    async def _ask(self) -> Decision: ...

    async def __aenter__(self) -> Decision:
        decision = _passed(await self._ask())
        if self._limiter.holds_permits:
            self._held.append(decision)
        return decision

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:
            await self._limiter.release(self._held.pop())


class AsyncGuard(_AsyncBlock):
    """`@limiter.guard(key)` on `async def`, or `async with limiter.guard("u1") as decision:`; raises RateLimited."""

    def __init__(self, limiter: AsyncLimiter, key: Key, cost: Cost) -> None:
        self._limiter, self._key, self._cost = limiter, key, cost
        self._held = []

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The coroutine function, asking first."""
        if not _is_coroutine_function(function, self._limiter.holds_permits):
            raise InvalidCall(f"{function!r} is not an async def: an AsyncLimiter guards those; use a Limiter here")

        @functools.wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> object:
            decision = _passed(await self._limiter.hit(_key_of(self._key, args, kwargs), self._cost))
            try:
                return await cast("Awaitable[object]", function(*args, **kwargs))
            finally:
                if self._limiter.holds_permits:
                    await self._limiter.release(decision)

        return cast("Callable[P, R]", guarded)

    async def _ask(self) -> Decision:
        return await self._limiter.hit(_fixed(self._key), self._cost)


class AsyncSlot(_AsyncBlock):
    """`async with limiter.slot("u1", timeout=2) as decision:` waits for its turn; raises RateLimited."""

    def __init__(self, limiter: AsyncLimiter, key: str, cost: Cost, timeout: float | None) -> None:
        self._limiter, self._key, self._cost, self._timeout = limiter, key, cost, timeout
        self._held = []

    async def _ask(self) -> Decision:
        return await self._limiter.acquire(self._key, self._cost, self._timeout)


def _fixed(key: Key) -> str:
    if callable(key):
        raise InvalidCall("a guard around a block has no arguments to make a key from; give it the key itself")
    return key
