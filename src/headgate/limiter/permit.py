"""`AsyncPermit`: a permit that is awaited, to be had and to be ended."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headgate.call import Cost
from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.permit import ENDED, Outcome, checked_outcome

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter


class AsyncPermit:
    """Leave to be in flight: `async with limiter.permit("k") as permit:`, or `permit = await limiter.permit("k")`.

    True where it was given. It ends when the block is left or `release` is awaited, whichever comes first; ending it
    again does nothing. A block that is left by an exception, or by being cancelled, ends it as `ignored`.
    """

    __slots__ = ("_asked", "_cost", "_decision", "_key", "_limiter", "_timeout", "outcome")

    def __init__(self, limiter: AsyncLimiter, key: str, cost: Cost, timeout: float | None) -> None:
        self._limiter = limiter
        self._key, self._cost, self._timeout = key, cost, timeout
        self._asked = False
        self._decision: Decision | None = None
        self.outcome: Outcome | None = None
        """How it ended; None while it is held, or where it was not given."""

    @property
    def decision(self) -> Decision:
        """The answer, once it was awaited."""
        if self._decision is None:
            raise InvalidCall("a permit has to be awaited first, as in `async with limiter.permit(key):`")
        return self._decision

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._ask().__await__()

    async def _ask(self) -> Self:
        if self._asked and self._decision is None:
            raise InvalidCall("a permit is for one caller, and somebody waits for this one: take another one")
        if not self._asked:
            self._asked = True
            try:
                self._decision = await self._limiter._permitted(self._key, self._cost, self._timeout)
            finally:
                self._asked = self._decision is not None
        return self

    def __bool__(self) -> bool:
        return self.decision.allowed

    async def release(self, outcome: Outcome = "success") -> bool:
        """End it, so; whether it was this call that ended it."""
        checked_outcome(outcome)
        if self.outcome is not None or not self.decision.allowed:
            return False
        self.outcome = outcome
        if not self._limiter._ended_at_once(self.decision):
            await self._limiter.release(self.decision)
        return True

    async def __aenter__(self) -> Self:
        if not self._asked:  # most are answered at once: one coroutine instead of three
            self._decision = self._limiter._permitted_at_once(self._key, self._cost, self._timeout)
            self._asked = self._decision is not None
        decision = self._decision
        if decision is None:
            decision = (await self._ask()).decision
        if not decision.allowed:
            raise RateLimited(decision)
        if self.outcome is not None:
            raise InvalidCall(ENDED)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome is None and self._decision is not None:  # as `release`, which is a coroutine more
            self.outcome = "success" if kind is None else "ignored"
            if not self._limiter._ended_at_once(self._decision):
                await self._limiter.release(self._decision)
