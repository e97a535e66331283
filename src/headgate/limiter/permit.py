"""`AsyncPermit`: a permit whose request and release are awaited."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headgate.call import Cost
from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Given
from headgate.permit import ENDED, Outcome, checked_outcome

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter


class AsyncPermit:
    """The right to be in flight: `async with limiter.permit("k") as permit:`, or `permit = await limiter.permit("k")`.

    True if it was granted. A permit ends when the block ends or when `release` is awaited, whichever comes first; a
    second end has no effect. A block that raises, or is cancelled, ends the permit as `ignored`.
    """

    __slots__ = ("_asked", "_cost", "_decision", "_key", "_limit", "_limiter", "_timeout", "outcome")

    def __init__(self, limiter: AsyncLimiter, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> None:
        self._limiter = limiter
        self._key = key
        self._cost = cost
        self._timeout = timeout
        self._limit = limit
        self._asked = False
        self._decision: Decision | None = None
        self.outcome: Outcome | None = None
        """How the permit ended; None while it is held, and for a refused permit."""

    @property
    def decision(self) -> Decision:
        """The decision; an error before the permit was awaited."""
        if self._decision is None:
            raise InvalidCall("this permit was not awaited: write `async with limiter.permit(key):`, or await it first")
        return self._decision

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._ask().__await__()

    async def _ask(self) -> Self:
        if self._asked and self._decision is None:
            raise InvalidCall("another task already waits for this permit: take another with limiter.permit(key)")
        if not self._asked:
            self._asked = True
            try:
                self._decision = await self._limiter._permitted(self._key, self._cost, self._timeout, self._limit)
            finally:
                self._asked = self._decision is not None
        return self

    def __bool__(self) -> bool:
        return self.decision.allowed

    async def release(self, outcome: Outcome = "success") -> bool:
        """Release the permit with this outcome. True if this call released it, False if it had ended already."""
        checked_outcome(outcome)
        if self.outcome is not None or not self.decision.allowed:
            return False
        self.outcome = outcome
        await self._limiter.release(self.decision)
        return True

    async def __aenter__(self) -> Self:
        limiter = self._limiter
        hit = limiter._hit_at_once
        if hit is not None and self._timeout == 0 and not self._asked and not limiter._waiting_by_key:
            self._asked = True  # the work of `_ask`, without its two coroutines
            decision = self._decision = hit(self._key, self._cost, limit=self._limit)
        else:
            decision = (await self._ask()).decision
        if not decision.allowed:
            raise RateLimited(decision)
        if self.outcome is not None:
            raise InvalidCall(ENDED)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome is None and self._decision is not None:  # the work of `release`, without its coroutines
            self.outcome = "success" if kind is None else "ignored"
            limiter = self._limiter
            if limiter._release_at_once is None or limiter._waiting_by_key:
                await limiter.release(self._decision)
            else:
                limiter._release_at_once(self._decision)
