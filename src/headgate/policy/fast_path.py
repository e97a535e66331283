"""Lanes: what happens to most requests, worked out once for a method and a set of rules.

Where the rules of a path look at nothing but the path and their keys, nothing but the keys is left to find out for
each request: one question to one store, with everything but the keys ready. A request that a fast_path cannot serve
(a part of its key is missing, its store gives no answer) goes the long way, through the compiled's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headgate.engine import Decision
from headgate.policy.key import LONGEST_KEY, Params, address_part, client_key, join, key_of, route_part
from headgate.policy.outcome import LimitGroup
from headgate.policy.rule import DEFAULT_PLAN, Rule
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView

Keys = str | tuple[str, ...]
MOST_FAST_PATHS: Final = 4096


class FastPath:
    """Rules without conditions, on one store that answers at once."""

    __slots__ = ("_keyed", "_only", "_prefix", "ask", "by_address", "by_params", "costs", "group", "shadows")

    def __init__(
        self, group: LimitGroup, keyed: Sequence[tuple[Rule, Params]], costs: tuple[int, ...], route: str | None = None
    ) -> None:
        self.group = group
        self.ask: Callable[[Keys, tuple[int, ...]], Decision] = group.ask
        """Given keys and `costs`, a decision; or a `StoreError`, and nothing was charged."""
        self.costs = costs
        self._keyed = keyed
        self._only = keyed[0] if len(keyed) == 1 else None
        parts = (address_part,) if route is None else (route_part, address_part)
        self.by_address = all(rule.key == parts for rule, _ in keyed) and len(route or "") < LONGEST_KEY // 2
        """Every rule counts by the client's address, and at an endpoint by its route."""
        self._prefix = "" if route is None else join([route.replace("\\", "\\\\"), ""])
        self.by_params = any(rule.by_params for rule, _ in keyed)
        """What paths name is part of a key: each path has a fast path of its own, made of this one."""
        self.shadows = any(rule.act.kind == "shadow" for rule in group.owners)

    def at(self, keyed: Sequence[tuple[Rule, Params]]) -> FastPath:
        """The same rules at another path."""
        fast_path = FastPath.__new__(FastPath)
        fast_path.group, fast_path.ask, fast_path.costs, fast_path.by_address = (
            self.group,
            self.ask,
            self.costs,
            self.by_address,
        )
        fast_path.by_params, fast_path.shadows, fast_path._prefix = self.by_params, self.shadows, self._prefix
        fast_path._keyed, fast_path._only = keyed, keyed[0] if len(keyed) == 1 else None
        return fast_path

    def key_by(self, address: str) -> Keys | None:
        """The key where it is `by_address`; None for what no address looks like."""
        key = client_key(address)
        return None if "|" in key else self._prefix + key

    def keys(self, view: RequestView) -> Keys | None:
        """What is counted; None where a part is missing, or was sent with different values."""
        try:
            if self._only is not None:
                rule, params = self._only
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
        or set(rule.plans) != {DEFAULT_PLAN}
        or rule.follows_response
        or rule.holds_permits
        or rule.counts_refused
        or cost.of is not None
    ):
        return None
    return cost.fixed if cost.by_method is None else cost.by_method.get(method, cost.fixed)
