"""The verbs over bound limits, once for every store: they check arguments, find plans and answer outages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from headgate.caches import ClearedWhenFull
from headgate.call import Call, Cost, checked_cost, checked_costs, checked_key
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO, Decision, Tally
from headgate.errors import InvalidCall, StoreError
from headgate.forks import after_fork
from headgate.limit import PAUSE, PAUSING, Given, Limit, as_limits
from headgate.stores.arguments import (
    Holding,
    Plans,
    checked_calls,
    checked_limits,
    checked_pause,
    checked_refund,
    in_flight_of,
    listed,
)
from headgate.stores.contract import BoundLimits, Costs, Keys, LeasingStore, Marks, OnError, Store
from headgate.stores.fallback import Fallback
from headgate.stores.placed import bind_placed
from headgate.stores.verbs import Carrying

if TYPE_CHECKING:
    from headgate.stores.leases.terms import Lease

MOST_BOUND: Final = 1024
"""The most combinations of limits, chosen for single calls, that stay bound."""
COUNTED: Final = (TAKE, UP_TO)
"""Modes whose decisions are answers to callers; a limiter counts those of RESERVE itself, once for each caller."""
HOT_VERBS: Final = ("hit", "peek", "take_up_to", "release", "_reserve")
"""The verbs of a gate that an engine may answer by functions of its own."""
Bound = TypeVar("Bound")
Answer = TypeVar("Answer")
"""A decision, or an awaitable of one."""


class BaseGate(Carrying, Generic[Bound, Answer]):
    """The base of both gates: limits on a store, their plans, and the answers while the store cannot answer."""

    store: Store
    _lease: Lease | bool = False
    _guard: tuple[Limit, ...] = ()
    """The pause, if keys can be paused: a decision asks it after the limits."""

    def __init__(self, store: Store, namespace: str, limits: tuple[Limit, ...], on_error: OnError = "local") -> None:
        super().__init__()
        self.namespace = namespace
        self.limits = checked_limits(limits)
        self.on_error: OnError = on_error
        self._tally = Tally()
        """Counts the answers to callers, whatever the store."""
        after_fork(self._forget_counts)
        self._use(store)

    def _forget_counts(self) -> None:
        """Count from zero in a forked child: the parent keeps its counts."""
        self._tally.forget()

    def _use(self, store: Store) -> None:
        """Decide by the states of this store from now on; `headgate.testing` replaces the store for a while."""
        self.store = store
        self._holds_permits = any(limit.in_flight for limit in self.limits)
        """True if an admitted call holds units in flight until it is released."""
        self._fallback = Fallback(self.on_error, store, self.namespace)
        self._bounds: ClearedWhenFull[tuple[Limit, ...], Bound] = ClearedWhenFull(MOST_BOUND, self._bind)
        self._bound_to: Callable[[tuple[Limit, ...]], Bound] = self._bounds.__getitem__
        """Returns these limits, bound: those of a plan, or of the calls of a decision."""
        self._plans = Plans(self.limits, lambda limits: self._bound_to(limits + self._guard))
        self._bound = self._bind_own(store)

    def _bind_own(self, store: Store) -> Bound:
        raise NotImplementedError

    def _bind(self, limits: tuple[Limit, ...]) -> Bound:
        raise NotImplementedError

    def _run(
        self,
        bound: Any,  # noqa: ANN401
        keys: Keys,
        costs: Costs,
        mode: int,
        wait_us: int = 0,
        counted: bool = True,
    ) -> Answer:
        """Decide. An answer to a caller is counted; one of several on the way to an answer, by RESERVE, is not."""
        raise NotImplementedError

    def _ask(self, key: str, cost: Cost, limit: Given | None, mode: int, wait_us: int = 0) -> Answer:
        bound: Any = self._bound if limit is None else self._plan(limit)
        return self._run(bound, checked_key(key), checked_costs(bound.limits, cost), mode, wait_us)

    def _plan(self, limit: Given) -> Any:  # noqa: ANN401
        """Return the limits of one call, bound, or an object that answers where the store has no room for them."""
        try:
            return self._plans.find(limit)
        except StoreError as error:
            return self._fallback.unbound(as_limits(limit) + self._guard, error)

    def _reserve(self, key: str, cost: Cost, wait_us: int, limit: Given | None = None) -> Answer:
        """Spend a cost that fits now or, if every limit lends, within this time; the decision's retry is the delay.

        A caller that is cancelled meanwhile is charged nothing.
        """
        return self._ask(key, cost, limit, RESERVE, wait_us)

    def _decide(self, calls: tuple[Call, ...], mode: int = TAKE, wait_us: int = 0, pausable: bool = False) -> Answer:
        limits, keys, costs = checked_calls(calls, pausable)
        try:
            bound: Any = self._bound_to(limits)
        except StoreError as error:
            bound = self._fallback.unbound(limits, error)
        return self._run(bound, keys, costs, mode, wait_us)

    def _pause(self, key: str, seconds: float) -> Answer:
        """Pause a key; the decision has no other use than to say where the pause was kept."""
        bound = self._bound_to(self._pausable(PAUSING))
        return self._run(bound, checked_key(key), (checked_pause(seconds),), TAKE, counted=False)

    def _paused(self, key: str) -> Answer:
        """Return a decision whose reset is the time that is left of a pause."""
        return self._run(self._bound_to(self._pausable(PAUSE)), checked_key(key), (0,), PEEK)

    def _pausable(self, limit: Limit) -> tuple[Limit, ...]:
        if not self._guard:
            raise InvalidCall("keys of this limiter cannot be paused: write Limiter('10/second', pausable=True)")
        return (limit,)

    def _given(self, charged: Decision | str, n: Cost | Costs | None) -> list[tuple[Any, Keys, Costs, Marks]]:
        """Return what to give back, and to which bound limits; an empty list if nothing is left to do."""
        limits, keys, units, marks = checked_refund(self.limits, charged, n)
        if isinstance(charged, Decision) and charged._held and not charged._holds_permits:
            self._tally.end(charged)
        if not any(units):
            return []
        if isinstance(charged, Decision) and charged.degraded:
            self._fallback.give(limits, keys, units, marks)
            return []
        own = limits == self.limits + self._guard
        return [(self._bound if own else self._bound_to(limits), keys, units, marks)]

    def _count(self, decision: Decision, holds: bool) -> Decision:
        """Count an answer to a caller, and return it; `holds`: an admitted caller is in flight until its release."""
        self._tally.count(decision, holds)
        return decision

    def _holds(self, bound: Any) -> bool:  # noqa: ANN401
        """Whether a decision over these limits has units in flight."""
        return self._holds_permits if bound is self._bound else any(limit.in_flight for limit in bound.limits)

    def _wake(self, decision: Decision) -> None:
        """Tell callers that wait for the keys of this decision that it was given back; a plain gate has none."""

    def _answering(self, bound: Any) -> Any:  # noqa: ANN401 - of either kind
        """Let the engine of the bound limits call the fallback itself, if it can."""
        if hasattr(bound, "answer_instead"):
            bound.answer_instead(self._fallback.decide)
        return bound


class Gate(BaseGate[BoundLimits, Decision]):
    """The gate for threads."""

    _HOT: ClassVar[tuple[str, ...]] = HOT_VERBS
    """Verbs that an engine may replace by native ones, without a Python frame."""

    def _bind_own(self, store: Store) -> BoundLimits:
        own = type(self)._own
        self._carry({verb: own[verb].__get__(self) for verb in self._HOT})  # for every store, so that all are alike
        if self._lease and isinstance(store, LeasingStore):
            bound = store.bind_leased(self.namespace, self.limits, self._lease)
        else:
            bound = self._bound_to(self.limits + self._guard)
        attach = getattr(bound, "attach", None)
        if attach is not None:
            self._carry(attach(own["hit"].__get__(self), self._plan, self._end, self._tally))
        return bound

    def _bind(self, limits: tuple[Limit, ...]) -> BoundLimits:
        bound: BoundLimits = bind_placed(
            self.store.clock,
            self.namespace,
            limits,
            lambda placed: self._answering(self.store.bind(self.namespace, placed)),
        )
        return bound

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses.

        `cost` may name the limits: `{"rpm": 1, "tpm": 500}`. `limit` chooses other numbers for this call (a plan):
        same algorithm, period and name, so the same state.
        """
        return self._ask(key, cost, limit, TAKE)

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Return the decision that `hit` would return. Writes nothing."""
        return self._ask(key, cost, limit, PEEK)

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much. Refused when not even 1 fits."""
        return self._ask(key, checked_cost(n), limit, UP_TO)

    def decide(self, *calls: Call) -> Decision:
        """Decide over several limits and keys at once: every call is charged or none is."""
        return self._decide(calls, pausable=bool(self._guard))

    def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if they were charged now."""
        self._refund(charged, n)
        if not isinstance(charged, str):
            self._wake(charged)

    def release(self, decision: Decision) -> None:
        """Give back the units in flight of a decision, at most once; rates stay charged. A `Permit` does so itself."""
        self._end(decision)
        self._wake(decision)

    def holders(self, key: str) -> list[Holding]:
        """Return the permits in flight of a key, the oldest first."""
        return listed(self.limits, self._bound.holders(checked_key(key)))

    def reset(self, key: str) -> None:
        """Forget all counts of a key, and end its pause."""
        self._bound.clear(checked_key(key))

    def pause(self, key: str, seconds: float) -> None:
        """Refuse every call of a key for this time, in every process of the store; needs `pausable=True`.

        Of two pauses the one that ends later counts. `reset` ends a pause.
        """
        self._fallback.kept(self._pause(key, seconds))

    def paused(self, key: str) -> float:
        """Return the seconds that are left of the pause of a key; 0.0 if it is not paused. Writes nothing."""
        return self._paused(key).reset_after

    def _run(
        self, bound: BoundLimits, keys: Keys, costs: Costs, mode: int, wait_us: int = 0, counted: bool = True
    ) -> Decision:
        try:
            decision = bound.run(keys, costs, mode, wait_us)
        except StoreError as error:
            decision = self._fallback.decide(bound.limits, keys, costs, mode, wait_us, error)
            if mode == PEEK and hasattr(bound, "with_held"):
                decision = bound.with_held(decision)
        return self._count(decision, self._holds(bound)) if counted and mode in COUNTED else decision

    def _end(self, decision: Decision) -> None:
        self._refund(decision, in_flight_of(decision))

    def _refund(self, charged: Decision | str, n: Cost | Costs | None = None) -> None:
        for bound, keys, units, marks in self._given(charged, n):
            try:
                bound.give(keys, units, marks)
            except StoreError as error:
                self._fallback.regret(error)
