"""`limited`: a decorator for functions. A call runs if the limits admit it, and else raises `RateLimited`.

Rates stay charged; units in flight are held while the function runs.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from headgate.call import Cost
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Given

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter
    from headgate.limiter.sync import Limiter

P = ParamSpec("P")
R = TypeVar("R")
Key = str | Callable[..., str]


def _key_of(key: Key, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    return key(*args, **kwargs) if callable(key) else key


def _is_coroutine_function(function: Callable[P, R], holds_permits: bool) -> bool:
    """Return whether the function is `async def`; raise `InvalidCall` if it cannot be limited."""
    import inspect  # here, because it is slow to import

    if not callable(function):
        raise InvalidCall(
            f"limited needs a key before it decorates a function: write @limiter.limited('k'); got {function!r}"
        )
    if inspect.isasyncgenfunction(function):
        raise InvalidCall(f"{function!r} is an async generator: limit the function that iterates over it")
    if holds_permits and inspect.isgeneratorfunction(function):
        raise InvalidCall(
            f"{function!r} is a generator, in flight while it is iterated: limit the function that iterates over it"
        )
    return inspect.iscoroutinefunction(function)


class Limited:
    """The decorator `@limiter.limited(key)`."""

    def __init__(self, limiter: Limiter, key: Key, cost: Cost, limit: Given | None) -> None:
        self._limiter, self._key, self._cost, self._limit = limiter, key, cost, limit

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with a check of the limits before each call."""
        limiter, key, cost, limit = self._limiter, self._key, self._cost, self._limit
        if _is_coroutine_function(function, limiter._holds_permits):
            raise InvalidCall(f"{function!r} is async, and a Limiter cannot await it: limit it with an AsyncLimiter")

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            decision = limiter.hit(_key_of(key, args, kwargs), cost, limit=limit)
            if not decision:
                raise RateLimited(decision)
            try:
                return function(*args, **kwargs)
            finally:
                if limiter._holds_permits:
                    limiter.release(decision)

        return limited

    def __enter__(self) -> None:
        raise InvalidCall("limited decorates functions; around a block, write `with limiter.permit(key):`")

    def __exit__(self, *_: object) -> None:
        """Never entered."""


class AsyncLimited:
    """The decorator `@limiter.limited(key)` of `async def`."""

    def __init__(self, limiter: AsyncLimiter, key: Key, cost: Cost, limit: Given | None) -> None:
        self._limiter, self._key, self._cost, self._limit = limiter, key, cost, limit

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the coroutine function with a check of the limits before each call."""
        limiter, key, cost, limit = self._limiter, self._key, self._cost, self._limit
        if not _is_coroutine_function(function, limiter._holds_permits):
            raise InvalidCall(f"{function!r} is not an async def: limit it with a Limiter, not an AsyncLimiter")

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> object:
            decision = await limiter.hit(_key_of(key, args, kwargs), cost, limit=limit)
            if not decision:
                raise RateLimited(decision)
            try:
                return await cast("Awaitable[object]", function(*args, **kwargs))
            finally:
                if limiter._holds_permits:
                    await limiter.release(decision)

        return cast("Callable[P, R]", limited)

    async def __aenter__(self) -> None:
        raise InvalidCall("limited decorates functions; around a block, write `async with limiter.permit(key):`")

    async def __aexit__(self, *_: object) -> None:
        """Never entered."""
