"""`AsyncPermit`: a permit that is awaited, to be had and to be ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Self

from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.permit import Outcome, checked_outcome


class AsyncPermit:
    """Leave to be in flight: `async with limiter.permit("k") as permit:`, or `permit = await limiter.permit("k")`.

    True where it was given. It ends when the block is left or `release` is awaited, whichever comes first; ending it
    again does nothing. A block that is left by an exception, or by being cancelled, ends it as `ignored`.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[Decision]], give_back: Callable[[Decision], Awaitable[None]]
    ) -> None:
        self._ask = ask
        self._give_back = give_back
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
        return self._asked().__await__()

    async def _asked(self) -> Self:
        if self._decision is None:
            self._decision = await self._ask()
        return self

    def __bool__(self) -> bool:
        return self.decision.allowed

    async def release(self, outcome: Outcome = "success") -> bool:
        """End it, so; whether it was this call that ended it."""
        checked_outcome(outcome)
        if self.outcome is not None or not self.decision.allowed:
            return False
        self.outcome = outcome
        await self._give_back(self.decision)
        return True

    async def __aenter__(self) -> Self:
        if not await self._asked():
            raise RateLimited(self.decision)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release("success" if kind is None else "ignored")
