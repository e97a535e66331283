"""`limited`: a decorator for functions. A call runs if the limits admit it, and else raises `RateLimited`.

With a timeout, a call waits until it is admitted. Rates stay charged; units in flight are held while the function runs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from headgate.call import Cost
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Given
from headgate.waiting import checked_wait
from headgate.wording import is_decorated_at

if TYPE_CHECKING:
    from types import FrameType

    from headgate.limiter.async_ import AsyncLimiter
    from headgate.limiter.sync import Limiter

P = ParamSpec("P")
R = TypeVar("R")
Key = str | Callable[..., str]
CostOf = Cost | Callable[..., Cost]
FRAMEWORKS: Final = frozenset(("aiohttp", "fastapi", "flask", "starlette"))
"""Libraries whose decorators of routes return the function as it was."""


class Charge(NamedTuple):
    """The key and the cost of a decorated call. Key and cost may be functions of the arguments."""

    key: Key
    cost: CostOf
    timeout: float | None
    limit: Given | None

    def checked(self) -> Charge:
        """Return the same, or raise `InvalidCall` if the timeout is no time."""
        if self.timeout is not None:
            checked_wait(self.timeout)
        return self

    def of(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[str, Cost]:
        """Return the key and the cost of a call with these arguments."""
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        return key, self.cost(*args, **kwargs) if callable(self.cost) else self.cost


def check_key(key: Key, frame: FrameType) -> Key:
    """Return the key; raise for `@limiter.limited` without parentheses, whose key is the function to limit."""
    if is_decorated_at(key, frame):
        raise InvalidCall(
            f"limited needs a key before it decorates a function: write @limiter.limited('k'); got {key!r}"
        )
    return key


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


def _check_place(function: Callable[..., object], frame: FrameType) -> None:
    """Raise if a route that the caller's code names has the function already: it would be called without the limit.

    Only while the function is decorated: one that has its name already may be at a route as it is, and limited
    elsewhere.
    """
    spaces = [frame.f_globals] if frame.f_locals is frame.f_globals else [frame.f_globals, frame.f_locals]
    name = getattr(function, "__name__", "")
    if not FRAMEWORKS & sys.modules.keys() or any(names.get(name) is function for names in spaces):
        return
    for names in spaces:
        for each in tuple(names.values()):  # other threads may import meanwhile
            if _is_of_a_framework(type(each)) and any(known is function for known in _endpoints_of(each)):
                raise InvalidCall(
                    f"a route calls {name} already, without the limit that @limited gives it: @limited is above the "
                    "route's decorator; swap the two lines"
                )


def _is_of_a_framework(kind: type) -> bool:
    return any(str(each.__module__).partition(".")[0] in FRAMEWORKS for each in kind.__mro__)


def _endpoints_of(app: Any) -> Iterator[object]:  # noqa: ANN401
    """Yield the functions at the routes of an app, a router or a table of routes; of anything else, nothing."""
    views = getattr(app, "view_functions", None)  # Flask
    yield from views.values() if isinstance(views, dict) else ()
    routes = app if isinstance(app, Sequence) else getattr(app, "routes", None)  # aiohttp's tables are sequences
    for route in routes if isinstance(routes, Sequence) else ():
        yield getattr(route, "endpoint", getattr(route, "handler", None))


class Limited:
    """The decorator `@limiter.limited(key)`."""

    def __init__(self, limiter: Limiter, charge: Charge) -> None:
        self._limiter, self._charge = limiter, charge.checked()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with a check of the limits before each call."""
        limiter, charge = self._limiter, self._charge
        timeout, limit = charge.timeout, charge.limit
        _check_place(function, sys._getframe(1))
        if _is_coroutine_function(function, limiter._holds_permits):
            raise InvalidCall(f"{function!r} is async, and a Limiter cannot await it: limit it with an AsyncLimiter")

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charge.of(args, kwargs)
            if timeout == 0:
                decision = limiter.hit(key, cost, limit=limit)
            else:
                decision = limiter.acquire(key, cost, timeout, limit=limit)
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

    def __init__(self, limiter: AsyncLimiter, charge: Charge) -> None:
        self._limiter, self._charge = limiter, charge.checked()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the coroutine function with a check of the limits before each call."""
        limiter, charge = self._limiter, self._charge
        timeout, limit = charge.timeout, charge.limit
        _check_place(function, sys._getframe(1))
        if not _is_coroutine_function(function, limiter._holds_permits):
            raise InvalidCall(f"{function!r} is not an async def: limit it with a Limiter, not an AsyncLimiter")

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> object:
            key, cost = charge.of(args, kwargs)
            if timeout == 0:
                decision = await limiter.hit(key, cost, limit=limit)
            else:
                decision = await limiter.acquire(key, cost, timeout, limit=limit)
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
