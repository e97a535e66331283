"""One key of a rule, by the rule's name: what is left of it, its reset and its ban. For edges and for policies alone.

The stores are asked directly. An outage raises `StoreError`: the answer of a fallback would be another count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.call import checked_cost
from headgate.clock import SECOND
from headgate.engine import PEEK, Decision
from headgate.errors import InvalidCall
from headgate.layout import MOST_CALLS
from headgate.limit import Given, Limit, Period
from headgate.policy.bans import Bans, blocks_of, checked_time
from headgate.policy.key_from_values import GivenKey, key_from
from headgate.policy.policy_bans import until_end_of_ban
from headgate.policy.rule import Rule
from headgate.policy.rule_limits import DEFAULT_PLAN, compile_limits
from headgate.steps import Steps, run, run_awaiting
from headgate.stores import AsyncStore, Store, bind_placed
from headgate.wording import listed, log_of, printable, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping


LONGEST_SHOWN: Final = 200
log = log_of("headgate.key")


class CountedRule(NamedTuple):
    """A rule, and where its counts are."""

    rule: Rule
    namespace: str
    stores: Mapping[str, Store]
    route: str | None = None
    """The route of an endpoint, if it is a part of the rule's key."""
    shown: Callable[[Rule, str], str] = lambda rule, key: key
    """Returns a key as it may be logged."""

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
        """Ask the store what is left, and whether the key is banned."""
        text, limits = key_from(self.rule, key, self.route), self.limits(plan, limit)
        answers: list[int] = []
        for some in _parts(limits):
            decision: Decision = yield self._bound(some, awaited).run(text, (checked_cost(cost),) * len(some), PEEK)
            answers += decision._answers
        left_us, _ = yield from self._bans(awaited).look(self.rule.name, text)
        if left_us:
            return until_end_of_ban(limits, text, cost, left_us, answers)
        return decision if len(limits) <= MOST_CALLS else Decision(limits, text, (cost,) * len(limits), answers)

    def resetting(self, key: GivenKey, limit: Given | None, awaited: bool) -> Steps[None]:
        """Forget the key under each limit of each plan."""
        text = key_from(self.rule, key, self.route)
        for some in _parts(self.every_limit(limit)):
            yield self._bound(some, awaited).clear(text)
        if self.rule.blocks_all:
            yield from self._bans(awaited).unban(blocks_of(self.rule), text)
        self._tell("reset", text)

    def banning(self, key: GivenKey, time_us: int, awaited: bool) -> Steps[None]:
        """Refuse the key for this time, in every plan; a time of 0 ends its ban."""
        bans, text = self._bans(awaited), key_from(self.rule, key, self.route)
        yield from bans.ban(self.rule.name, text, time_us) if time_us else bans.unban(self.rule.name, text)
        self._tell(f"banned for {time_us / SECOND:g} s" if time_us else "unbanned", text)

    def _tell(self, done: str, text: str) -> None:
        """Log that the app has changed a key."""
        key, rule = self.shown(self.rule, text), self.rule.name
        extra = {"rule": rule, "key": key}
        log.info("the app %s the key %s of rule %s", done, printable(key, LONGEST_SHOWN), rule, extra=extra)

    def _bans(self, awaited: bool) -> Bans:
        return Bans(self.stores[self.rule.store], self.namespace, awaited)

    def _bound(self, limits: tuple[Limit, ...], awaited: bool) -> Any:  # noqa: ANN401 - of either kind
        store = self.stores[self.rule.store]
        bind = store.bind_async if awaited and isinstance(store, AsyncStore) else store.bind
        return bind_placed(store.clock, self.namespace, limits, lambda placed: bind(self.namespace, placed))


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
        """Forget all counts of a key under a rule, in every plan, and end its block; a ban stays."""
        self._check_thread("reset")
        run(self._counted(rule).resetting(key, limit, awaited=False))

    async def areset(self, rule: str, key: GivenKey = None, *, limit: Given | None = None) -> None:
        """Like `reset`, in an event loop."""
        await run_awaiting(self._counted(rule).resetting(key, limit, awaited=True))

    def ban(self, rule: str, key: GivenKey, duration: Period) -> None:
        """Refuse every request of a key under a rule for this time: "1h", seconds, or a timedelta.

        The ban is kept by the store, and holds in every process within a second. Of two bans the one that ends later
        counts. `unban` ends it.
        """
        self._check_thread("ban")
        run(self._counted(rule).banning(key, checked_time(duration), awaited=False))

    async def aban(self, rule: str, key: GivenKey, duration: Period) -> None:
        """Like `ban`, in an event loop."""
        await run_awaiting(self._counted(rule).banning(key, checked_time(duration), awaited=True))

    def unban(self, rule: str, key: GivenKey = None) -> None:
        """End the ban of a key under a rule; its counts stay."""
        self._check_thread("unban")
        run(self._counted(rule).banning(key, 0, awaited=False))

    async def aunban(self, rule: str, key: GivenKey = None) -> None:
        """Like `unban`, in an event loop."""
        await run_awaiting(self._counted(rule).banning(key, 0, awaited=True))


def check_no_loop(verb: str) -> None:
    """Raise `InvalidCall` in a running event loop, on every store: a program tried in memory may use Redis later."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidCall(f"{verb} would stop the event loop while it waits for the store; write await limits.a{verb}(...)")
