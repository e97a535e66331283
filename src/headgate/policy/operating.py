"""One key of a rule, by the rule's name: what is left of it, and its reset. For edges, and for a policy without an app.

The stores are asked directly. An outage raises `StoreError`: the answer of a fallback would be another count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.call import checked_cost
from headgate.engine import PEEK, Decision
from headgate.errors import InvalidCall
from headgate.layout import MOST_CALLS
from headgate.limit import Given, Limit
from headgate.policy.given_key import GivenKey, key_from
from headgate.policy.rule import DEFAULT_PLAN, Rule, compile_limits
from headgate.steps import Steps, run, run_awaiting
from headgate.stores import AsyncStore, Store
from headgate.wording import listed, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping


class CountedRule(NamedTuple):
    """A rule, and where its counts are."""

    rule: Rule
    namespace: str
    stores: Mapping[str, Store]
    route: str | None = None
    """The route of an endpoint, if it is a part of the rule's key."""

    def limits(self, plan: str | None, limit: Given | None) -> tuple[Limit, ...]:
        """Return the limits that a request of this plan is decided by."""
        rule, plans = self.rule, self._plans(limit)
        if plan is None and len(plans) > 1:
            raise InvalidCall(
                f"rule {rule.name} has other limits for each plan; write plan={DEFAULT_PLAN!r} or another of "
                f"{listed(plans)}"
            )
        limits = plans[DEFAULT_PLAN] if plan is None or plan not in plans else plans[plan]
        if not limits:
            raise InvalidCall(f"rule {rule.name} has no limit for the plan {plan!r}")
        return limits

    def every_limit(self, limit: Given | None) -> tuple[Limit, ...]:
        """Return a limit for each state that a key may have, in whatever plan."""
        every = (each for limits in self._plans(limit).values() for each in limits)
        return tuple({each.identity: each for each in every}.values())

    def _plans(self, limit: Given | None) -> Mapping[str, tuple[Limit, ...]]:
        rule = self.rule
        if rule.plans is not None:
            if limit is not None:
                raise InvalidCall(f"rule {rule.name} has limits of its own; write limit= only if a function gives them")
            return rule.plans
        if limit is None:
            raise InvalidCall(
                f"the limits of rule {rule.name} are a function of the request; write limit='100/minute', as the "
                "function would return it"
            )
        return {DEFAULT_PLAN: compile_limits(rule.name, limit, rule.act, rule.block)}

    def peeking(
        self, key: GivenKey, cost: int, plan: str | None, limit: Given | None, awaited: bool
    ) -> Steps[Decision]:
        """Ask the store what is left."""
        text, limits = key_from(self.rule, key, self.route), self.limits(plan, limit)
        answers: list[int] = []
        for some in _parts(limits):
            decision: Decision = yield self._bound(some, awaited).run(text, (checked_cost(cost),) * len(some), PEEK)
            answers += decision._answers
        return decision if len(limits) <= MOST_CALLS else Decision(limits, text, (cost,) * len(limits), answers)

    def resetting(self, key: GivenKey, limit: Given | None, awaited: bool) -> Steps[None]:
        """Forget the key under each limit of each plan."""
        text = key_from(self.rule, key, self.route)
        for some in _parts(self.every_limit(limit)):
            yield self._bound(some, awaited).clear(text)

    def _bound(self, limits: tuple[Limit, ...], awaited: bool) -> Any:  # noqa: ANN401 - of either kind
        store = self.stores[self.rule.store]
        if awaited and isinstance(store, AsyncStore):
            return store.bind_async(self.namespace, limits)
        return store.bind(self.namespace, limits)


def _parts(limits: tuple[Limit, ...]) -> Iterable[tuple[Limit, ...]]:
    return (limits[start : start + MOST_CALLS] for start in range(0, len(limits), MOST_CALLS))


def rule_named(name: str, rules: Iterable[Rule]) -> Rule:
    """Return the rule of this name; raise `InvalidCall`, with the name probably meant, if there is none."""
    by_name = {rule.name: rule for rule in rules}
    if name not in by_name:
        raise InvalidCall(unknown_rule(name, list(by_name)))
    return by_name[name]


def unknown_rule(name: str, known: list[str]) -> str:
    """Return the message about a rule that does not exist."""
    return f"no rule {name!r}; {suggestion(str(name), known)}" if known else f"no rule {name!r}: there are no rules"


class RuleKeys:
    """The verbs over one key of a rule: with `a` in front they are awaited."""

    def _counted(self, rule: str) -> CountedRule:
        """Return the rule of this name."""
        raise NotImplementedError

    def _check_thread(self, verb: str) -> None:
        """Raise `InvalidCall` if this thread must not wait for a store."""

    def peek(
        self, rule: str, key: GivenKey = None, cost: int = 1, *, plan: str | None = None, limit: Given | None = None
    ) -> Decision:
        """Return what a key has left under a rule, over all limits of the rule. Writes nothing.

        `key` has the values of the rule's key: one, a tuple in the order of the parts, or a mapping by their names.
        `plan` is needed if the rule has limits by plan; `limit` if a function of the app gives the limits.
        """
        self._check_thread("peek")
        return run(self._counted(rule).peeking(key, cost, plan, limit, awaited=False))

    async def apeek(
        self, rule: str, key: GivenKey = None, cost: int = 1, *, plan: str | None = None, limit: Given | None = None
    ) -> Decision:
        """Like `peek`, in an event loop."""
        return await run_awaiting(self._counted(rule).peeking(key, cost, plan, limit, awaited=True))

    def reset(self, rule: str, key: GivenKey = None, *, limit: Given | None = None) -> None:
        """Forget all counts of a key under a rule, in every plan, and end its block."""
        self._check_thread("reset")
        run(self._counted(rule).resetting(key, limit, awaited=False))

    async def areset(self, rule: str, key: GivenKey = None, *, limit: Given | None = None) -> None:
        """Like `reset`, in an event loop."""
        await run_awaiting(self._counted(rule).resetting(key, limit, awaited=True))


def check_no_loop(verb: str) -> None:
    """Raise `InvalidCall` in a running event loop, on every store: a program tried in memory may use Redis later."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidCall(f"{verb} would stop the event loop while it waits for the store; write await limits.a{verb}(...)")
