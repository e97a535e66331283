"""Plain questions: limits that the caller names, whatever the policy says."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.errors import InvalidLimit
from headgate.limit import LimitWarning, as_limits
from headgate.limiter.async_ import AsyncLimiter
from headgate.stores import Store

NAMESPACE: Final = "check"
"""The namespace of these counts: a policy's are not touched."""
MOST: Final = 100
"""Different limits. Each takes memory in the store for as long as the service runs, and callers can invent them."""


class NamedLimits:
    """The limits that were asked for so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limiters: dict[str, AsyncLimiter] = {}

    def question(
        self, limit: str, key: str, cost: int = 1, peek: bool = False
    ) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Return a function that decides; raise for a limit that cannot be read."""
        limiter = self._limiters.get(limit) or self._made(limit)
        ask = limiter.peek if peek else limiter.hit

        async def decide() -> dict[str, Any]:
            return (await ask(key, cost)).as_dict()

        return decide

    def limiters(self) -> list[AsyncLimiter]:
        """Return the limiters of all limits so far."""
        return list(self._limiters.values())

    def _made(self, limit: str) -> AsyncLimiter:
        if len(self._limiters) >= MOST:
            raise InvalidLimit(f"this service was asked for {MOST} different limits already; use one of those")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimitWarning)
            limits = as_limits(limit)
            if any(each.in_flight for each in limits):
                raise InvalidLimit("a limit in flight needs the end of each request, which this service never sees")
            limiter = self._limiters[limit] = AsyncLimiter(*limits, store=self._store, namespace=NAMESPACE)
        return limiter
