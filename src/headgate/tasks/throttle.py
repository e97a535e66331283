"""Who may run now, and when the others come back.

A backlog that is told `retry_after` comes back at one instant, again and again, and whoever happens to be first goes
first. Here everyone is given an instant of its own. Beside each limit stands a line: a bucket of the same rate, which
is charged for places in it. A task that would wait too long takes a place and comes back at its instant. Only then does
it ask the limit itself, and only a task that runs is charged. So tasks come back at the rate at which they can run, in
the order in which they came; and where they come late, or somebody else spent the limit, it is the limit that decides.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

from headgate.call import Cost, checked_costs
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.limiter.reservation import Reservation
from headgate.limiter.wait_queue import checked_wait
from headgate.tasks.turn import Turn

LONGEST: Final = 900.0
"""Seconds for which a task is handed back at most. Brokers deliver a second time what is held back for longer (RabbitMQ
after 30 minutes, Celery's Redis transport after an hour), and SQS delays nothing longer than this."""


class Throttle:
    """A limiter for tasks: a short wait is waited for in the worker, for a longer one the task is handed back."""

    def __init__(
        self,
        limiter: Limiter,
        key: str | Callable[..., str],
        cost: Cost | Callable[..., Cost] = 1,
        wait: float = 1.0,
    ) -> None:
        """`key` and `cost` may be functions of the task's arguments; `wait` is the most to wait here, in seconds."""
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
        """The turn of the task with these arguments; RateLimited for a cost that can never fit.

        `came_back` is that it was handed back before, with a place in line.
        """
        key, cost = self._asked(args, kwargs)
        lines = self._here()
        if not came_back:
            place = self._stand(lines.line, key, cost)
            seconds = place.delay or place.retry_after
            if seconds > self.wait and not place.decision.never:  # that is for the limit itself to say
                return _later(place, seconds)
        decision = self.limiter.acquire(key, cost, self.wait)
        if decision:
            return Turn(Reservation(self.limiter, decision))
        if decision.never:
            raise RateLimited(decision)
        place = self._stand(lines.again, key, cost)
        # One after the other, and no burst at once: one was just refused.
        return _later(place, max(decision.retry_after, place.decision.reset_after))

    def take_or_raise(self, *args: Any, **kwargs: Any) -> Turn:  # noqa: ANN401
        """The turn of a task that no queue can bring back: one called as a function, or run eagerly in a test."""
        decision = self.limiter.acquire(*self._asked(args, kwargs), self.wait)
        if not decision:
            raise RateLimited(decision)
        return Turn(Reservation(self.limiter, decision))

    def _asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Cost]:
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        cost = self.cost(*args, **kwargs) if callable(self.cost) else self.cost
        return key, cost

    def _stand(self, line: Limiter, key: str, cost: Cost) -> Reservation:
        """A place in line, if there is one within the time for which a task can be handed back."""
        costs = checked_costs(self.limiter.limits, cost)
        by_name = {limit.name: each for limit, each in zip(line.limits, costs, strict=True)}
        return line.reserve(key, by_name, LONGEST)

    def _here(self) -> _Lines:
        if self._lines.store is not self.limiter.store:  # as in tests: `frozen`, `disabled`
            self._lines = _Lines(self.limiter)
        return self._lines


def _later(place: Reservation, seconds: float) -> Turn:
    """Come back then. Where there was no place, or only one too far away, it is at random: not one instant for all."""
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
        """For those who come back and are refused: they do not stand behind all who came after them."""


def _paced(limiter: Limiter, name: str) -> Limiter:
    limits = [_pace(limit, name) for limit in limiter.limits]
    return Limiter(limits, store=limiter.store, namespace=limiter.namespace, on_error=limiter.on_error)


def _pace(limit: Limit, name: str) -> Limit:
    """The limit's rate as a bucket, whatever its algorithm; its state is nobody else's."""
    filed = blake2b(limit.identity.encode(), digest_size=8).hexdigest()
    return Limit(limit.amount, limit.period, burst=limit.burst, name=f"{name}-{filed}")


def arguments_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401
    """The arguments of a call as the function has them, however they were given: in order, defaults included.

    So a key such as `lambda customer, *_: customer` need not know whether a task was sent `customer=` by name.
    """
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs
