"""Fast paths: the handling of most requests, prepared once for a method and a set of rules.

If the rules of a path depend only on the path and their keys, only the keys differ from request to request: each one
is one question to one store, prepared except for the keys. A request that a fast path cannot serve (a part of its key
is missing, its store gives no answer) takes the steps of `CompiledPolicy.before`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any, Final

from headgate.engine import Decision
from headgate.policy.client_key import AddressPart
from headgate.policy.key import LONGEST_KEY, Params, join, key_of, route_part
from headgate.policy.key_escaping import ClientKey, UnusablePart
from headgate.policy.outcome import LimitGroup
from headgate.policy.rule import Rule
from headgate.policy.rule_limits import DEFAULT_PLAN
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView

Keys = str | tuple[str, ...]
last_part: Final[Callable[[str], str]] = methodcaller("replace", "|", "\\p")
"""Returns a client's key as the last of several parts, as `join` writes it."""


class FastPath:
    """Rules without conditions, on one store that answers at once."""

    __slots__ = (
        "_keyed", "ask", "by_address", "by_params", "client_key", "costs", "decide", "decide_request", "group",
        "prefix", "responder", "shadows", "with_fields", "write_fields", "writes_fields",
    )  # fmt: skip

    responder: Any
    """The responder of the policy, and the writer of a decision's header fields: both are set by `headgate.web`."""
    write_fields: Callable[[Decision], list[tuple[Any, Any]]]
    writes_fields: bool
    """Whether it writes any."""
    with_fields: Callable[[Iterable[tuple[Any, Any]], Decision], Iterable[tuple[Any, Any]]]
    """Returns the headers of a response, with the fields of a decision added."""
    decide_request: Callable[[Any, str | None], Decision | None]
    """Like `decide`, for a framework's request and its peer, where the client is not the peer."""

    def __init__(
        self, group: LimitGroup, keyed: Sequence[tuple[Rule, Params]], costs: tuple[int, ...], route: str | None = None
    ) -> None:
        self.group = group
        self.ask: Callable[[Keys, tuple[int, ...]], Decision] = group.counted or group.ask
        """Returns a decision for keys and `costs`, and counts it; a `StoreError` means that no unit was charged."""
        self.costs = costs
        self._keyed = keyed
        first = _before_address(keyed[0][0], route)
        self.prefix = first or ""
        self.client_key = keyed[0][0].client_key
        self.decide = _deciding(self.client_key, self.prefix, self.ask, costs)
        """Decides on a request of this client, if the rules count `by_address`; None if the request takes the steps."""
        self.by_address = first is not None and len(first) < LONGEST_KEY // 2
        """Whether every rule counts by the client's address, after `prefix`."""
        self.by_params = False
        """Whether a `{name}` of the path is part of a key: then each path has its own copy of this fast path."""
        self.shadows = False
        for rule, _ in keyed:
            before = first if rule is keyed[0][0] else _before_address(rule, route)
            if before != first:
                self.by_address = False
            if before is None:
                self.by_params = self.by_params or rule.by_params
            self.shadows = self.shadows or rule.act.kind == "shadow"

    def at(self, keyed: Sequence[tuple[Rule, Params]]) -> FastPath:
        """Return a copy for the same rules at another path."""
        fast_path = FastPath.__new__(FastPath)
        for name in self.__slots__:
            if hasattr(self, name):  # what `headgate.web` sets is missing in the lab
                setattr(fast_path, name, getattr(self, name))
        fast_path._keyed = keyed
        return fast_path

    def decide_by(self, view: RequestView) -> Decision | None:
        """Decide on a request, whatever its rules count by; None if the request takes the steps."""
        keys = self._keys(view)
        try:
            return None if keys is None else self.ask(keys, self.costs)
        except Exception:
            return None

    def _keys(self, view: RequestView) -> Keys | None:
        """Return the keys to count; None if a part is missing or was sent with different values."""
        try:
            if len(self._keyed) == 1:
                rule, params = self._keyed[0]
                return key_of(rule.key, view, params)
            by_rule = {rule.index: key_of(rule.key, view, params) for rule, params in self._keyed}
        except (Unclear, UnusablePart):  # the steps tell which rule it is
            return None
        if None in by_rule.values():
            return None
        return tuple([by_rule[rule.index] or "" for rule in self.group.owners])


def _deciding(
    client_key: ClientKey, prefix: str, ask: Callable[[Keys, tuple[int, ...]], Decision], costs: tuple[int, ...]
) -> Callable[[str | None], Decision | None]:
    """Return a function that decides by a client's address: it has nothing to look up in the fast path."""

    def decide(client: str | None) -> Decision | None:
        if not client:
            return None
        try:
            return ask(client_key(client), costs)
        except Exception:  # the steps try again, and answer by `on_error`
            return None

    def decide_after(client: str | None) -> Decision | None:
        if not client:
            return None
        try:
            return ask(prefix + last_part(client_key(client)), costs)
        except Exception:
            return None

    return decide_after if prefix else decide


def _before_address(rule: Rule, route: str | None) -> str | None:
    """Return the start of a rule's keys, if all but the client's address is known in advance; otherwise None."""
    if not isinstance(rule.key[-1], AddressPart):
        return None
    if len(rule.key) == 1:
        return ""
    view, known = RequestView("GET", "/", {}), []
    view.route = route
    for name, part in zip(rule.parts[:-1], rule.key[:-1], strict=True):
        value = part(view, {}) if part is route_part or name.startswith("constant ") else None
        if value is None:
            return None
        known.append(value)
    return join([*known, ""])


def cost_in_fast_path(rule: Rule, method: str) -> int | None:
    """Return the cost of a request under a rule that a fast path can serve; None for every other rule."""
    cost = rule.cost
    if (
        rule.act.kind not in ("deny", "shadow")
        or rule.plans is None
        or rule.plans.keys() != {DEFAULT_PLAN}
        or rule.follows_response
        or rule.holds_permits
        or rule.blocks_all
        or rule.count.refused
        or rule.count.requests is not None
        or cost.of is not None
        or rule.awaited
        or cost.by_match
    ):
        return None
    return cost.fixed if cost.by_method is None else cost.by_method.get(method, cost.fixed)
