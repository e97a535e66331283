"""Throttles: decide whether it is the turn of a task to run, or when it comes back.

If refused tasks used `retry_after`, they would all come back at one instant, again and again, in no order. So each task
gets an instant of its own. Each limit has a line beside it: a bucket of the same rate that is charged for places in the
line. A task that would wait too long takes a place and comes back at its instant. Then it asks the limit itself, and
only a task that runs is charged. So tasks come back at the rate at which they can run, in the order of their arrival.
If a task comes late, or another caller has used the limit up, the limit decides.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from hashlib import blake2b
from types import TracebackType
from typing import Any, Final, Self

from headgate.call import Cost, checked_costs
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Limit
from headgate.limiter import Limiter, Reservation
from headgate.waiting import checked_wait

LONGEST: Final = 900.0
"""The most seconds for which a task is handed back. Brokers deliver a task again if it is held for longer (RabbitMQ:
30 minutes, Celery's Redis transport: an hour), and SQS allows no longer delay."""


class Turn:
    """True if the task may run now: the limit is charged, and the task runs in `with turn:`.

    False if the task must come back in `come_back` seconds: the limit is not charged.
    """

    def __init__(self, charge: Reservation, come_back: float | None = None, *, in_line: bool = False) -> None:
        self.come_back = come_back or 0.0
        self.in_line = in_line
        """True if the task keeps its place until then: pass `came_back=True` when it asks again."""
        self._runs = come_back is None
        self._charge = charge
        self._outer: Token[Turn | None] | None = None

    def __bool__(self) -> bool:
        return self._runs

    def settle(self, actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Replace the charge by the real cost, once: `settle(431)`, or `settle(tpm=431)` for limits with names."""
        if not self:
            raise InvalidCall("this task may not run yet and was not charged: there is nothing to settle")
        self._charge.settle(actual, **by_name)

    def cancel(self) -> None:
        """Give back the charge, or the place in line, of a task that will not run."""
        self._charge.cancel()

    def __enter__(self) -> Self:
        self._outer = _running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the limit charged: a task may have failed after the call that the limit is for."""
        if self._outer is not None:
            _running.reset(self._outer)


_running: ContextVar[Turn | None] = ContextVar("headgate_turn", default=None)


def settle(actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
    """Replace the charge of the running task by its real cost, once: `settle(431)`, or `settle(tpm=431)` by name."""
    turn = _running.get()
    if turn is None:
        raise InvalidCall("no throttled task runs here: call settle inside one, while it runs")
    turn.settle(actual, **by_name)


class Throttle:
    """A limiter for tasks: the worker waits for a short time itself; for a longer wait the task is handed back."""

    def __init__(
        self,
        limiter: Limiter,
        key: str | Callable[..., str],
        cost: Cost | Callable[..., Cost] = 1,
        wait: float = 1.0,
    ) -> None:
        """`key` and `cost` may be functions of the task's arguments; `wait` is the longest wait here, in seconds."""
        if not isinstance(limiter, Limiter):
            raise InvalidCall(f"a throttle needs a Limiter; got {limiter!r}")
        if limiter._holds_permits:
            raise InvalidCall("a throttle cannot hold a limit in flight: use limiter.permit(key) in the task instead")
        if not isinstance(key, str) and not callable(key):
            raise InvalidCall(f"a key must be a str, or a function of the task's arguments that gives one; got {key!r}")
        checked_wait(wait)
        self.limiter, self.key, self.cost, self.wait = limiter, key, cost, wait
        self._lines = _Lines(limiter)

    def take(self, *args: Any, came_back: bool = False, **kwargs: Any) -> Turn:  # noqa: ANN401
        """Return the turn of the task with these arguments; raise `RateLimited` for a cost that can never fit.

        `came_back` is true if the task was handed back before, with a place in line.
        """
        key, cost = self._asked(args, kwargs)
        lines = self._here()
        if not came_back:
            place = self._stand(lines.line, key, cost)
            seconds = place.delay or place.retry_after
            if seconds > self.wait and not place.decision.never:  # the limit itself refuses that below
                return _later(place, seconds)
        decision = self.limiter.acquire(key, cost, self.wait)
        if decision:
            return Turn(Reservation(self.limiter, decision))
        if decision.never:
            raise RateLimited(decision)
        place = self._stand(lines.again, key, cost)
        # `reset_after` spaces these tasks one by one, without a burst: the limit has just refused one.
        return _later(place, max(decision.retry_after, place.decision.reset_after))

    def take_or_raise(self, *args: Any, **kwargs: Any) -> Turn:  # noqa: ANN401
        """Return the turn of a task that no queue can bring back: called as a function, or run eagerly in a test."""
        decision = self.limiter.acquire(*self._asked(args, kwargs), self.wait)
        if not decision:
            raise RateLimited(decision)
        return Turn(Reservation(self.limiter, decision))

    def _asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Cost]:
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        cost = self.cost(*args, **kwargs) if callable(self.cost) else self.cost
        return key, cost

    def _stand(self, line: Limiter, key: str, cost: Cost) -> Reservation:
        """Reserve a place in line, within the time for which a task can be handed back."""
        costs = checked_costs(self.limiter.limits, cost)
        by_name = {limit.name: each for limit, each in zip(line.limits, costs, strict=True)}
        return line.reserve(key, by_name, LONGEST)

    def _here(self) -> _Lines:
        if self._lines.store is not self.limiter.store:  # changed by `frozen` or `disabled` in tests
            self._lines = _Lines(self.limiter)
        return self._lines


def _later(place: Reservation, seconds: float) -> Turn:
    """Return a turn for later. Without a place, or with one too far away, the time is random: not the same for all."""
    if not place:
        seconds = max(seconds, place.decision.retry_after_spread())
    if seconds > LONGEST:
        return Turn(place, LONGEST * (1 + random.random()) / 2)  # noqa: S311 - nothing to be guessed
    return Turn(place, seconds, in_line=bool(place))


class _Lines:
    """The lines beside a limiter, in its store and namespace."""

    def __init__(self, limiter: Limiter) -> None:
        self.store = limiter.store
        self.line = _paced(limiter, "line")
        self.again = _paced(limiter, "again")
        """The line of tasks that come back and are refused, so that they do not queue behind newer tasks."""


def _paced(limiter: Limiter, name: str) -> Limiter:
    """Return each limit's rate as a bucket, for any algorithm; a name keeps its state separate."""
    limits = []
    for limit in limiter.limits:
        filed = blake2b(limit.identity.encode(), digest_size=8).hexdigest()
        limits.append(Limit(limit.amount, limit.period, burst=limit.burst, name=f"{name}-{filed}"))
    return Limiter(limits, store=limiter.store, namespace=limiter.namespace, on_error=limiter.on_error)


def arguments_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401
    """Return the arguments of a call in the function's order, with defaults, whether given by position or by name.

    So a key such as `lambda customer, *_: customer` also works for a task that was sent `customer=` by name.
    """
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs
