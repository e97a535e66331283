"""The gates of a policy: decisions over the limits of its rules, and the answers while a store cannot answer.

A gate raises its errors, and each rule follows its own `on_error`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, Final

from headgate.engine import PEEK, TAKE, Counting, Decision, Tally, run_counted
from headgate.errors import HeadgateError
from headgate.limit import Limit
from headgate.policy.outcome import UNAVAILABLE, LimitGroup, Outcome
from headgate.policy.rule import Rule
from headgate.steps import NoEventLoop
from headgate.stores import AsyncGate, AsyncStore, Gate, MemoryStore, Store, checked_limits, share_of
from headgate.wording import log_of

COMPLAIN_EVERY: Final = 10.0
"""Seconds between two lines in the log about a store that does not answer."""
_SOME: Final = (Limit(1, "month", name="headgate"),)
"""A gate needs limits when it is made; a policy asks about those of its rules instead.

Limits of the calendar are bound when they are asked about: these take no room in the store.
"""


log = log_of("headgate.policy")


class PolicyGate(Gate):
    """A gate for threads, and for stores that answer without being awaited."""

    def hold(self, decision: Decision) -> None:
        """Count a request in flight, until its decision is given back."""
        self._tally.count(decision, True)

    def asker(self, limits: tuple[Limit, ...], looks: bool = False) -> Callable[..., Decision]:
        """Return a function that decides over these limits, given keys (or one for all) and costs, unchecked.

        With `looks`, it charges nothing.
        """
        run = self._bound_to(checked_limits(limits)).run
        return (lambda keys, costs: run(keys, costs, PEEK, 0)) if looks else run

    def counted_asker(self, limits: tuple[Limit, ...], counting: Counting) -> Callable[..., Decision]:
        """Like `asker`; each decision is counted."""
        return run_counted(self._bind(checked_limits(limits)), counting)

    def look(self, decision: Decision, costs: tuple[int, ...] | None = None) -> Decision:
        """Return what is left for the calls of a decision, or the answer to others of these costs; charge nothing."""
        limits, keys = decision._asked
        return self._bound_to(limits).run(keys, costs or (0,) * len(keys), PEEK, 0)


class AsyncPolicyGate(AsyncGate):
    """A gate for stores that are awaited."""

    def hold(self, decision: Decision) -> None:
        """See `PolicyGate.hold`."""
        self._tally.count(decision, True)

    def asker(self, limits: tuple[Limit, ...], looks: bool = False) -> Callable[..., Awaitable[Decision]]:
        """See `PolicyGate.asker`."""
        bound, mode = self._bound_to(checked_limits(limits)), PEEK if looks else TAKE
        return lambda keys, costs: self._run(bound, keys, costs, mode, counted=False)

    def look(self, decision: Decision, costs: tuple[int, ...] | None = None) -> Awaitable[Decision]:
        """See `PolicyGate.look`."""
        limits, keys = decision._asked
        return self._run(self._bound_to(limits), keys, costs or (0,) * len(keys), PEEK)


def gate_on(store: Store, namespace: str, gauges: Tally, awaited: bool = False) -> Any:  # noqa: ANN401 - of either kind
    """Return a gate for the rules of a policy; an async one if the edge awaits and the store can be awaited."""
    kind = AsyncPolicyGate if awaited and isinstance(store, AsyncStore) else PolicyGate
    gate = kind(store, namespace, _SOME, "raise")
    gate._tally = gauges  # one for every gate of an edge: a request may end after a reload
    return gate


class Outage:
    """Degraded answers of one policy. A store's own `local` store counts for it; its `nodes` share the limits.

    An app on trio is no outage: it could count nothing, so each of its requests raises `NoEventLoop`.
    """

    def __init__(self, namespace: str, stores: Mapping[str, Store], gauges: Tally) -> None:
        self._namespace = namespace
        self._gauges = gauges
        self._stores = stores
        self._memory = MemoryStore()
        self._next_complaint = 0.0

    def answer(
        self, group: LimitGroup, keys: tuple[str, ...], costs: tuple[int, ...], error: Exception
    ) -> Outcome | tuple[LimitGroup, Decision] | None:
        """Return a refusal, the local decision with its group, or None if every rule allows the request."""
        if isinstance(error, NoEventLoop):
            raise error
        self._complain(error)
        closed = next((rule for rule in group.owners if rule.on_error in ("deny", "raise")), None)
        if closed is not None:
            return Outcome("deny", UNAVAILABLE, closed)
        counting = [at for at, rule in enumerate(group.owners) if rule.on_error == "local"]
        if not counting:
            return None
        try:
            if group.local is None:
                group.local = self._local_group(group, counting)
            decision = group.local.ask(tuple(keys[at] for at in counting), tuple(costs[at] for at in counting))
        except Exception as reason:  # a request that cannot be counted is refused
            self._complain(reason)
            return Outcome("deny", UNAVAILABLE, group.owners[counting[0]])
        return group.local, decision

    def note(self, rule: Rule, error: Exception) -> None:
        """Note that a rule which lets every request pass got no answer."""
        if isinstance(error, NoEventLoop):
            raise error
        log.info("rule %s (%s) got no answer from the store: %s", rule.name, rule.act.kind, error)

    def _local_group(self, group: LimitGroup, counting: list[int]) -> LimitGroup:
        store = self._stores[group.store]
        nodes = getattr(store, "nodes", 1)
        gate = gate_on(getattr(store, "local", None) or self._memory, self._namespace, self._gauges)
        shares = [(group.owners[at], share_of(group.limits[at], nodes)) for at in counting]
        local = LimitGroup(group.store, gate, shares, group.looks)
        local.degraded = True
        return local

    def _complain(self, error: Exception) -> None:
        """Log an outage once in a while, not for each request; an unexpected error with its traceback."""
        now = monotonic()
        if now >= self._next_complaint:
            self._next_complaint = now + COMPLAIN_EVERY
            known = isinstance(error, HeadgateError)
            log.warning("no answer from the store (%s): each rule follows its on_error", error, exc_info=not known)
