"""Calls that must be awaited, and that raise or warn when they are not.

A coroutine is always true, so `if limiter.hit(key):` without `await` would admit every request. Like `decision.py`,
this file is built twice: the native engine compiles its classes as C classes.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

from headgate.errors import InvalidCall

NOT_AWAITED: Final = "write `await` in front of {}(...): without it there is no answer yet, only a coroutine"

ALIKE: Final = (
    "__name__", "__qualname__", "__module__", "__doc__", "__code__", "__defaults__", "__kwdefaults__",
    "__annotations__",
)  # fmt: skip
AWAITED_TWICE: Final = "cannot reuse already awaited coroutine"
DROPPED_AT: Final = 3 if __name__ == "headgate.engine.pending_call" else 1
"""The stack level of the line that dropped a call: compiled functions have no frame."""


def warn_of_no_await(name: str) -> None:
    """Warn as Python does for its own coroutines."""
    warnings.warn(f"coroutine {name!r} was never awaited", RuntimeWarning, stacklevel=DROPPED_AT)


class PendingCall:
    """A call that was not awaited yet. Its truth value raises, because there is no answer yet."""

    __slots__ = ("_args", "_awaits", "_begun", "_coroutine", "_entered", "_function", "_named")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], awaits: bool
    ) -> None:
        self._function = function
        self._args = args
        self._named = named
        self._awaits = awaits
        self._begun = False
        self._coroutine: Any = None

    def _begin(self) -> Any:  # noqa: ANN401
        if self._begun:
            raise RuntimeError(AWAITED_TWICE)
        self._begun = True
        return self._function(*self._args, **self._named)

    def __await__(self) -> Any:  # noqa: ANN401 - an iterator for `await`, of values that only an event loop reads
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        return self.send(None)

    async def __aenter__(self) -> Any:  # noqa: ANN401
        """Await the answer, and enter it."""
        self._entered = await self
        return await self._entered.__aenter__()

    async def __aexit__(self, *error: Any) -> Any:  # noqa: ANN401
        return await self._entered.__aexit__(*error)

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Like `send` of a coroutine, which a task calls."""
        if not self._awaits:
            raise StopIteration(self._begin())
        if self._coroutine is None:
            self._coroutine = self._begin()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Like `throw` of a coroutine."""
        if self._coroutine is not None:
            return self._coroutine.throw(*error)
        self._begun = True
        raise error[1] if len(error) > 1 and error[1] is not None else error[0]

    def close(self) -> None:
        """Like `close` of a coroutine."""
        if self._coroutine is not None:
            self._coroutine.close()
        self._begun = True

    def __bool__(self) -> NoReturn:
        self._begun = True
        raise InvalidCall(NOT_AWAITED.format(self._function.__name__))

    def __del__(self) -> None:
        if not self._begun and self._function is not None:  # the collector may have cleared a native call
            warn_of_no_await(self._function.__name__)


class PendingMethod:
    """A method whose answer must be awaited. `awaits` says whether the function is a coroutine function itself."""

    def __init__(self, function: Callable[..., Any], awaits: bool) -> None:
        self._function = function
        self._awaits = awaits

    def __call__(self, *args: Any, **named: Any) -> PendingCall:  # noqa: ANN401
        """Return the call, to be awaited."""
        return PendingCall(self._function, args, named, self._awaits)


def looking_like(method: Callable[..., Any], made: Any) -> Any:  # noqa: ANN401
    """Give `made` the attributes by which `inspect`, frameworks and mocks recognise the coroutine function `method`."""
    for name in ALIKE:
        setattr(made, name, getattr(method, name))
    made.__wrapped__ = method
    return made
