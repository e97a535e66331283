"""A gate: limits bound to their tables. The twin's decider decides; what is not hot is written here, once for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headgate.call import Call, Cost, checked_key
from headgate.engine.arguments import Mark, Plans, checked_calls, checked_limits, checked_refund, in_flight_of
from headgate.engine.choice import Decider, Decision, Engine, Permit, Table
from headgate.engine.holding import Holding, listed
from headgate.engine.modes import PEEK, RESERVE, TAKE
from headgate.limit import Given, Limit


class Instead(Protocol):
    """Answers where the tables cannot."""

    def decide(
        self, limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int, wait: int = 0
    ) -> Decision:
        """The answer."""
        ...

    def give(
        self, limits: tuple[Limit, ...], keys: tuple[str, ...], units: tuple[int, ...], marks: tuple[Mark | None, ...]
    ) -> None:
        """Give back what such an answer has in flight."""
        ...


class Acquire(Protocol):
    """A question that may take time."""

    def __call__(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """The answer."""
        ...


class TakePermit(Protocol):
    """A question whose answer ends."""

    def __call__(self, key: str, cost: Cost = 1, timeout: float | None = 0) -> Permit:
        """The answer."""
        ...


class Gate:
    """`hit`, `peek` and `take_up_to` are the decider's own methods."""

    def __init__(
        self,
        engine: Engine,
        limits: tuple[Limit, ...],
        table_for: Callable[[Limit], Table],
        instead: Instead | None = None,
    ) -> None:
        self.limits = checked_limits(limits)
        self._engine = engine
        self._table_for = table_for
        self._instead = instead
        self._decide_instead = None if instead is None else instead.decide
        self._decider = engine.decider(
            self._tables(limits), limits, Plans(limits, self._decider_of).find, self._decide_instead
        )
        self.hit = self._decider.hit
        self.peek = self._decider.peek
        self.take_up_to = self._decider.take_up_to
        self.reserve = self._decider.reserve
        self.release = self._decider.release
        self._decider.back_by(lambda decision: self.refund(decision, in_flight_of(decision)))

    def wait_by(
        self,
        waiting: dict[str, Any],
        wait: Callable[[str, Cost, float | None, Given | None], Decision],
        wake: Callable[[Decision], None],
    ) -> tuple[Acquire, TakePermit]:
        """The decider's own `acquire` and `permit`: they turn to `wait` where the answer is not simply yes.

        What is released from now on rings for those who wait.
        """
        self._decider.wait_by(waiting, wait, wake)
        return self._decider.acquire, self._decider.permit

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[str | tuple[str, ...], tuple[int, ...]], Decision]:
        """`decide` over these limits again and again: keys (or one for all) and costs, checked already."""
        return self._decider_of(checked_limits(limits)).run

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision: all are charged or none is; with a wait also for later."""
        limits, keys, costs = checked_calls(calls)
        return self._decider_of(limits).run(keys, costs, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back a decision (or part of it), or units of a key as if charged now."""
        limits, keys, units, marks = checked_refund(self.limits, charged, n)
        if self._instead is not None and not isinstance(charged, str) and charged.degraded:
            self._instead.give(limits, keys, units, marks)
            return
        decider = self._decider if limits == self.limits else self._decider_of(limits)
        decider.give(keys, units, marks)

    def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        return listed(self.limits, self._engine.clock.now_us(), self._decider.holders(key))

    def reset(self, key: str) -> None:
        """Make the key as new under every limit of this gate."""
        self._decider.clear(checked_key(key))

    def _decider_of(self, limits: Sequence[Limit]) -> Decider:
        return self._engine.decider(self._tables(limits), limits, None, self._decide_instead)

    def _tables(self, limits: Sequence[Limit]) -> list[Table]:
        return [self._table_for(limit) for limit in limits]
