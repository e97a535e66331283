"""Functions of an app that have to be awaited: an edge of an event loop does so before a policy decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from headgate.errors import InvalidPolicy
from headgate.policy.view import RequestView
from headgate.steps import Deferred
from headgate.wording import shown

AWAITED: Final = frozenset({"key", "limits", "cost", "exempt"})
"""The fields of a rule whose functions may have to be awaited."""


def is_awaited(function: object) -> bool:
    """Return whether a call of this function has to be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with such a method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def result_of(function: Callable[..., Any], view: RequestView) -> Any:  # noqa: ANN401
    """Return what a function has returned for this request; raise `InvalidPolicy` if nothing has awaited it."""
    if view.results is None or function not in view.results:
        raise InvalidPolicy([in_threads(function)])
    return view.results[function]


def in_threads(function: object) -> str:
    """Return the message about a function that has to be awaited where nothing can do so."""
    return f"{shown(function)} has to be awaited, which ASGI, FastAPI, aiohttp and grpc.aio do; write a plain function"


class Results(Deferred):
    """The step that awaits the functions of some rules for one request."""

    def __init__(self, view: RequestView, functions: Sequence[Callable[..., Any]]) -> None:
        self._view, self._functions = view, functions

    def now(self) -> None:
        """Raise: a thread cannot await."""
        raise InvalidPolicy([in_threads(self._functions[0])])

    def __await__(self) -> Generator[Any, Any, None]:
        return self._await_all().__await__()

    async def _await_all(self) -> None:
        self._view.results = {function: await function(self._view) for function in self._functions}
