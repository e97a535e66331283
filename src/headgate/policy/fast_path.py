"""Fast paths: what happens to most requests, worked out once for a method and a set of rules.

Where the rules of a path look at nothing but the path and their keys, nothing but the keys is left to find out for
each request: one question to one store, with everything but the keys ready. A request that a fast path cannot serve
(a part of its key is missing, its store gives no answer) takes the steps of `CompiledPolicy.before`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headgate.engine import Decision
from headgate.policy.key import LONGEST_KEY, Params, address_part, join, key_of, route_part
from headgate.policy.outcome import LimitGroup
from headgate.policy.rule import DEFAULT_PLAN, Rule
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView

Keys = str | tuple[str, ...]
MOST_FAST_PATHS: Final = 4096


class FastPath:
    """Rules without conditions, on one store that answers at once."""

    __slots__ = (
        "_keyed", "ask", "by_address", "by_params", "costs", "group", "prefix", "responder", "shadows", "write_fields",
    )  # fmt: skip

    responder: Any
    """Who answers for the policy, and the header fields of a decision: set by the HTTP half."""
    write_fields: Callable[[Decision], list[tuple[Any, Any]]]

    def __init__(
        self, group: LimitGroup, keyed: Sequence[tuple[Rule, Params]], costs: tuple[int, ...], route: str | None = None
    ) -> None:
        self.group = group
        self.ask: Callable[[Keys, tuple[int, ...]], Decision] = group.ask
        """Given keys and `costs`, a decision; or a `StoreError`, and nothing was charged."""
        self.costs = costs
        self._keyed = keyed
        self.prefix = "" if route is None else join([route.replace("\\", "\\\\"), ""])
        self.by_address = len(route or "") < LONGEST_KEY // 2
        """Every rule counts by the client's address, after `prefix`."""
        self.by_params = False
        """What paths name is part of a key: each path has a fast path of its own, made of this one."""
        self.shadows = False
        parts = (address_part,) if route is None else (route_part, address_part)
        for rule, _ in keyed:
            if rule.key != parts:
                self.by_address = False
                self.by_params = self.by_params or rule.by_params
            self.shadows = self.shadows or rule.act.kind == "shadow"

    def at(self, keyed: Sequence[tuple[Rule, Params]]) -> FastPath:
        """The same rules at another path."""
        fast_path = FastPath.__new__(FastPath)
        for name in self.__slots__:
            setattr(fast_path, name, getattr(self, name))
        fast_path._keyed = keyed
        return fast_path

    def keys(self, view: RequestView) -> Keys | None:
        """What is counted; None where a part is missing, or was sent with different values."""
        try:
            if len(self._keyed) == 1:
                rule, params = self._keyed[0]
                return key_of(rule.key, view, params)
            by_rule = {rule.index: key_of(rule.key, view, params) for rule, params in self._keyed}
        except Unclear:
            return None
        if None in by_rule.values():
            return None
        return tuple([by_rule[rule.index] or "" for rule in self.group.owners])


def cost_in_fast_path(rule: Rule, method: str) -> int | None:
    """What a request costs under a rule that a fast path can serve; None for every other rule."""
    cost = rule.cost
    if (
        rule.act.kind not in ("deny", "shadow")
        or rule.plans is None
        or rule.plans.keys() != {DEFAULT_PLAN}
        or rule.follows_response
        or rule.holds_permits
        or rule.counts_refused
        or cost.of is not None
    ):
        return None
    return cost.fixed if cost.by_method is None else cost.by_method.get(method, cost.fixed)
