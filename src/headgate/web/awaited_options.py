"""Functions among the options of an edge that have to be awaited: `user`, `claims` and `plan`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from headgate.errors import InvalidCall
from headgate.policy import RequestView
from headgate.policy.edges import in_threads, is_awaited
from headgate.steps import Deferred
from headgate.web.options import WebOptions
from headgate.web.responder import Responder, Shortcut

ASKED: Final = ("user", "claims", "plan")
"""Such options, in the order in which they are awaited: a plan may depend on the user."""


class AwaitedOptions:
    """The functions of one edge; its constructor raises `InvalidCall` if the edge runs in threads."""

    def __init__(self, options: WebOptions, awaited: bool) -> None:
        self._options = options
        self.names = tuple(name for name in ASKED if is_awaited(getattr(options, name)))
        """The options whose functions have to be awaited for each request."""
        self.plan_at_once = None if "plan" in self.names else options.plan
        """The function `plan`, if it need not be awaited."""
        if is_awaited(options.client):
            raise InvalidCall(f"client must be a plain function, which no key has to wait for; got {options.client!r}")
        for name in () if awaited else self.names:
            raise InvalidCall(f"{name}: {in_threads(getattr(options, name))}")

    def shortcuts(self, responder: Responder[Any]) -> Callable[[str, str], Shortcut]:
        """Return how shortcuts are found: none but by addresses, if a function must be called for a request first."""

        def by_address(method: str, path: str) -> Shortcut:
            shortcut = responder.shortcut_of(method, path)
            return shortcut if isinstance(shortcut, bool) or shortcut.by_address else False  # the user is not known yet

        if self._options.plan is not None:
            return lambda method, path: False
        return by_address if self.names else responder.shortcut_of

    def step(self, request: Any, view: RequestView) -> Deferred:  # noqa: ANN401
        """Return the step that awaits them for one request."""
        return _Awaiting(self, request, view)

    async def await_all(self, request: Any, view: RequestView) -> None:  # noqa: ANN401
        """Await them, and set the results on the view."""
        for name in self.names:
            if name != "plan" or view.plan is None:
                result = await getattr(self._options, name)(view if name == "plan" else request)
                setattr(view, name, result)


class _Awaiting(Deferred):
    def __init__(self, options: AwaitedOptions, request: Any, view: RequestView) -> None:  # noqa: ANN401
        self._options, self._request, self._view = options, request, view

    def __await__(self) -> Generator[Any, Any, None]:
        return self._options.await_all(self._request, self._view).__await__()
