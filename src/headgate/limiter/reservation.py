"""Reservations: charged now, usable after a delay, and settled when the real cost is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headgate.algorithms import Verdict
from headgate.call import Call, checked_cost
from headgate.clock import SECOND
from headgate.engine import LONGEST_WAIT, PEEK, RESERVE, Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.limiter.wait_queue import WaitQueue, lends
from headgate.steps import Steps, run, run_awaiting
from headgate.waiting import sleep_until, warn_if_in_loop

if TYPE_CHECKING:
    from headgate.limiter.async_ import AsyncLimiter
    from headgate.limiter.sync import Limiter
    from headgate.waiting.timers import Timers


class _Reserved:
    """The common base of `Reservation` and `AsyncReservation`."""

    def __init__(self, decision: Decision, queue: WaitQueue) -> None:
        self.decision = decision
        self._queue = queue
        self._promise = queue.promise(decision) if decision.allowed and decision.retry_us else None
        self._clock = queue.clock
        self._ready_us = self._clock.now_us() if self._promise is None else self._promise.ready_us
        self._open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    @property
    def delay(self) -> float:
        """Seconds from the charge until the reservation may be used; 0.0 if at once."""
        return self.decision.retry_us / SECOND if self.decision.allowed else 0.0

    @property
    def retry_after(self) -> float:
        """Seconds until a refused reservation may be tried again; 0.0 if it was granted."""
        return 0.0 if self.decision.allowed else self.decision.retry_after

    def _checked(self) -> None:
        if not self.decision.allowed:
            raise RateLimited(self.decision)

    def _differences(self, actual: int | Mapping[str, int] | None, by_name: Mapping[str, int]) -> tuple[int, ...]:
        """Return the real cost of each call, less its charge."""
        calls = self.decision.calls
        given = by_name if actual is None else actual
        if isinstance(given, Mapping):
            names = {call.limit.name for call in calls if call.limit.name and not call.limit.guards}
            if not given or not set(given) <= names:
                known = ", ".join(sorted(names)) or "not named"
                raise InvalidCall(f"settle takes real costs by limits' names; the limits are {known}; got {given!r}")
            real = tuple(checked_cost(given.get(call.limit.name, call.cost)) for call in calls)
        elif by_name:
            raise InvalidCall("settle takes one number for every limit, or numbers by name, but not both")
        else:
            real = (checked_cost(given),) * len(calls)
        return tuple(0 if call.limit.guards else cost - call.cost for cost, call in zip(real, calls, strict=True))

    def _settling(self, gate: Any, differences: tuple[int, ...]) -> Steps[None]:  # noqa: ANN401 - either limiter
        """Give back the unused units; charge the extra units, as far as the limits can."""
        if not self._open:
            return
        self._open = False
        calls = self.decision.calls
        if any(each < 0 for each in differences):
            unused = tuple(max(0, -each) for each in differences)
            yield gate._refund(self.decision, unused)
        more = [(call, extra) for call, extra in zip(calls, differences, strict=True) if extra > 0]
        if not more or self.decision.degraded:
            return
        if all(extra <= call.limit.burst and lends(call.limit) for call, extra in more):
            together = [Call(call.limit, call.key, extra) for call, extra in more]
            if (yield gate._decide(tuple(together), RESERVE, LONGEST_WAIT)):
                return
        for call, extra in more:
            yield from _owe(gate, call, extra)

    def _cancelling(self, gate: Any) -> Steps[None]:  # noqa: ANN401
        """Give the whole charge back, once no promise is left behind it."""
        if not self._open:
            return
        self._open = False
        if not self._queue.lends:
            yield gate._refund(self.decision)
            return
        promise = self._promise or self._queue.promise(self.decision)
        for freed in self._queue.promises.free(promise):
            yield gate._refund(freed.decision)


def _owe(gate: Any, call: Call, extra: int) -> Steps[None]:  # noqa: ANN401
    """Charge one limit as many extra units as it can take: up to an hour ahead if it lends, else what remains."""
    limit = call.limit
    while extra > 0:
        units = min(extra, limit.burst)
        if not lends(limit):  # look first, because a refusal would start a block
            look = Call(limit, call.key, 0)
            verdict: Verdict = (yield gate._decide((look,), PEEK)).verdicts[0]
            units = min(units, verdict.remaining)
        if units == 0:
            return
        ask = Call(limit, call.key, units)
        if not (yield gate._decide((ask,), RESERVE, LONGEST_WAIT)):
            return
        extra -= units


class Reservation(_Reserved):
    """A cost charged now and usable after `delay`. True if it was granted.

    As a context manager it waits until it may be used, raises `RateLimited` if it was refused, and gives the whole
    charge back if the body raises. A reservation that is neither settled nor cancelled stays charged.
    """

    def __init__(self, limiter: Limiter, decision: Decision) -> None:
        super().__init__(decision, limiter._queue)
        self._limiter = limiter

    def wait(self) -> None:
        """Wait until the reservation may be used."""
        self._checked()
        if self._ready_us > self._clock.now_us():
            warn_if_in_loop()
        sleep_until(self._clock, self._ready_us)

    def settle(self, actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Say what it really cost: `settle(431)`, or `settle(tpm=431)` where limits have names; once."""
        run(self._settling(self._limiter, self._differences(actual, by_name)))

    def cancel(self) -> None:
        """Give everything back; nothing happens after the first time, or after `settle`."""
        run(self._cancelling(self._limiter))

    def __enter__(self) -> Self:
        self._checked()
        try:
            self.wait()
        except BaseException:
            self.cancel()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.cancel()


class AsyncReservation(_Reserved):
    """A `Reservation` whose methods are awaited."""

    def __init__(self, limiter: AsyncLimiter, decision: Decision, timers: Timers) -> None:
        super().__init__(decision, limiter._queue)
        self._limiter = limiter
        self._timers = timers

    async def wait(self) -> None:
        """Wait until the reservation may be used."""
        self._checked()
        await self._timers.wait_until(self._ready_us)

    async def settle(self, actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Say what it really cost: `settle(431)`, or `settle(tpm=431)` where limits have names; once."""
        settling = self._settling(self._limiter, self._differences(actual, by_name))
        await self._limiter._finish(run_awaiting(settling))

    async def cancel(self) -> None:
        """Give everything back; nothing happens after the first time, or after `settle`."""
        await self._limiter._finish(run_awaiting(self._cancelling(self._limiter)))

    async def __aenter__(self) -> Self:
        self._checked()
        try:
            await self.wait()
        except BaseException:
            await self.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.cancel()
