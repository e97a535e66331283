"""`Policy`: compiled rules, indexed by method and path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.policy.action import Action
from headgate.policy.client_key import IPV4_PREFIX, IPV6_PREFIX, client_keys
from headgate.policy.fleet import NAME as FLEET
from headgate.policy.hashing import hasher
from headgate.policy.header_fields import read_headers
from headgate.policy.key import Params
from headgate.policy.key_escaping import ClientKey
from headgate.policy.match import Predicate, read_condition
from headgate.policy.mode import Mode, milder, read_mode
from headgate.policy.parser import Parser
from headgate.policy.policy_fields import FIELDS, PLAN, PREFIXES, VERSION
from headgate.policy.rule import Rule, read_rule
from headgate.policy.rule_index import MatchedRules, RuleIndex
from headgate.policy.secret import read_secret
from headgate.policy.shed_section import ShedSection, read_shed
from headgate.policy.source import Source, read_source
from headgate.policy.token import Tokens, read_tokens
from headgate.policy.values import Repeated, kind_of_header
from headgate.policy.view import RequestView
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.policy.bound import BoundPolicy
    from headgate.stores import Store


class Policy:
    """The limited requests, the keys they are counted by, and the form of a refusal.

    From a file, a mapping, or another policy's source: `Policy.load("policy.yaml")`, `Policy({"rules": [...]})`.
    """

    def __init__(self, value: Mapping[str, Any] | Source) -> None:
        source = value if isinstance(value, Source) else read_source(value)
        parser = Parser(source)
        given = parser.fields(source.value, (), FIELDS)
        version = given.get("version", VERSION)
        if version != VERSION or isinstance(version, bool):
            parser.error(("version",), f"expected version {VERSION}; got {shown(version)}")
        self.stores: Mapping[str, str] = _stores(parser, given.get("stores", {}))
        self.namespace = _namespace(parser, given.get("namespace", "policy"))
        self.headers = read_headers(parser, given.get("headers", "draft-11"))
        self.plan_header, self.plan_claim = _plan(parser, given.get("plan"))
        self.tokens: Tokens | None = read_tokens(parser, given["tokens"]) if "tokens" in given else None
        """The verifier of tokens; None if the policy has no `tokens`."""
        self.repeated: Repeated = parser.read_repeated(given, ())
        """The treatment of a request that sends different values under one name."""
        parser.repeated = self.repeated
        if self.tokens is not None:
            self.tokens.repeated = self.repeated
            parser.claims_of = self.tokens.claims
        parser.client_key = _client_key(parser, given.get("address_prefixes", {}))
        if "pepper" in given:
            parser.hashed = hasher(read_secret(parser, given["pepper"], ("pepper",)) or b"")
        self.allow = read_condition(parser, given["allow"], ("allow",), every=True) if "allow" in given else None
        self.deny: Predicate | None = read_condition(parser, given["deny"], ("deny",)) if "deny" in given else None
        self.mode: Mode = read_mode(parser, given.get("mode", "enforce"), ("mode",))
        """Whether the rules refuse, only observe, or do nothing."""
        self.rules = _rules(parser, given.get("rules"), self.stores, given.keys() <= {"version", "rules"})
        self.shed: ShedSection | None = (
            read_shed(parser, given["shed"], self.stores, len(self.rules)) if "shed" in given else None
        )
        """The settings of a load shedder; None if the policy has no `shed`."""
        parser.finish()
        self._settings = {field: given[field] for field in given if field not in ("rules", "shed")}
        self._apply_mode()

    @classmethod
    def load(cls, given: Policy | str | Path | Mapping[str, Any]) -> Policy:
        """Return a policy from a `Policy`, the path of a file, or a mapping."""
        return given if isinstance(given, Policy) else cls(read_source(given))

    def bind(self, store: Store | str | None = None) -> BoundPolicy:
        """Return the policy on this store, without an app: `peek` and `reset` of one key of a rule."""
        from headgate.policy.bound import BoundPolicy  # here, because it imports every rule's stores

        return BoundPolicy(self, store)

    def with_rules(self, rules: Sequence[Mapping[str, Any]]) -> Policy:
        """Return a policy with other rules and the same lists, stores, namespace, headers, tokens and pepper."""
        return Policy({**self._settings, "rules": rules})

    def with_compiled(self, rules: Sequence[Rule]) -> Policy:
        """Return the same policy with other versions of its own rules, in the same order."""
        policy = copy(self)
        policy.rules = tuple(rules)
        policy._apply_mode()
        return policy

    def switched_off(self) -> Policy:
        """Return the same policy, which does nothing: its rules are known by their names only."""
        policy = copy(self)
        policy.mode = "off"
        policy._settings = {**self._settings, "mode": "off"}
        policy._apply_mode()
        return policy

    def _apply_mode(self) -> None:
        """Let every rule observe if the policy does; index the rules, unless the policy is off."""
        if self.mode == "observe":
            self.rules = tuple(replace(rule, act=Action("observe")) for rule in self.rules)
        if self.shed is not None:
            self.shed = replace(self.shed, mode=milder(self.mode, self.shed.mode))
        if self.mode == "off":
            self.allow = self.deny = self.plan_header = self.plan_claim = None
        self._index = RuleIndex(() if self.mode == "off" else self.every_rule)

    def with_only(self, rules: Sequence[Rule]) -> Policy:
        """Return the same policy with some of its rules, in the same order, and without load shedding."""
        policy = copy(self)
        policy.shed = None
        return policy.with_compiled([replace(rule, index=index) for index, rule in enumerate(rules)])

    @property
    def every_rule(self) -> tuple[Rule, ...]:
        """The rules, and those of the fleet's limit."""
        return self.rules if self.shed is None else (*self.rules, *self.shed.fleet)

    def hashes_as(self, other: Policy) -> bool:
        """Whether both policies hash a secret to the same key."""
        return bool(self._settings.get("pepper") == other._settings.get("pepper"))

    def counts_addresses_as(self, other: Policy) -> bool:
        """Whether both policies make the same key of an address."""
        return bool(self._settings.get("address_prefixes") == other._settings.get("address_prefixes"))

    def rules_for(self, method: str, path: str) -> MatchedRules:
        """Return the rules whose methods and paths match, in order, each with the named segments of its path."""
        return self._index.found[method]["/" if self._index.pathless else path]

    def find(self, method: str, path: str) -> MatchedRules:
        """Like `rules_for`, but uncached, for callers that keep the result."""
        return self._index.find(method, path)

    def matching(self, view: RequestView, exempted: list[Rule] | None = None) -> Sequence[tuple[Rule, Params]]:
        """Return the rules that apply to a request; those that exempt it are added to `exempted`."""
        found = self._index.found[view.method]["/" if self._index.pathless else view.path]
        if found.set.plain:
            return found.pairs
        matching = []
        for pair in found.pairs:  # loops: a comprehension inside of another costs each request several calls
            rule = pair[0]
            for condition in rule.match.conditions:
                if not condition(view):
                    break
            else:
                if rule.exempt is None or not rule.exempt(view):
                    matching.append(pair)
                elif exempted is not None:
                    exempted.append(rule)
        return matching

    def plan_of(self, view: RequestView) -> str | None:
        """Return the plan of a request from the policy's `plan`: from trusted peers and verified claims only."""
        if self.tokens is not None:
            view.claims_of = self.tokens.claims
        if self.plan_header is not None and view.from_trusted_peer:
            lines, kind = view.header_values(self.plan_header), kind_of_header(self.plan_header)
            return kind.plain(kind.one(self.plan_header, lines, self.repeated)) if lines else None
        if self.plan_claim is not None and view.claims is not None:
            claim = view.claims.get(self.plan_claim)
            return claim if isinstance(claim, str) else None
        return None


def _rules(parser: Parser, value: object, stores: Mapping[str, str], alone: bool) -> tuple[Rule, ...]:
    if not isinstance(value, list | tuple):
        parser.error(("rules",) if value is not None else (), f"a policy needs a list of rules; got {shown(value)}")
        return ()
    if not value and alone:
        parser.error(("rules",), "rules is empty; write a rule, or another section such as deny or headers")
    rules = [read_rule(parser, each, ("rules", at), at, stores) for at, each in enumerate(value)]
    seen = {FLEET}
    for at, rule in enumerate(rules):
        if rule is None:
            continue
        names = {rule.name} | {limit.name for limits in (rule.plans or {}).values() for limit in limits}
        if names & seen:
            parser.error(
                ("rules", at, "name"), f"two rules have the name {rule.name!r} and would share their counts; rename one"
            )
        seen |= names
    read = (rule for rule in rules if rule is not None)
    return tuple(replace(rule, index=index) for index, rule in enumerate(read))


def _stores(parser: Parser, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(url, str) for url in value.values()):
        odd = [each for each in value.values() if not isinstance(each, str)] if isinstance(value, Mapping) else [value]
        kind = type(odd[0]).__name__  # the value is not shown: a URL may contain a password
        parser.error(
            ("stores",), f"expected names and URLs, as in {{fleet: redis://cache}}; got a value of type {kind}"
        )
        return {}
    return {str(name): url for name, url in value.items()}


def _namespace(parser: Parser, value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\0]{1,128}", value):
        return value
    parser.error(("namespace",), f"expected a word; got {shown(value)}")
    return "policy"


def _client_key(parser: Parser, value: object) -> ClientKey:
    given = parser.fields(value, ("address_prefixes",), PREFIXES)
    ipv4 = parser.whole(given.get("ipv4", IPV4_PREFIX), ("address_prefixes", "ipv4"), 1, 32)
    return client_keys(ipv4, parser.whole(given.get("ipv6", IPV6_PREFIX), ("address_prefixes", "ipv6"), 1, 128))


def _plan(parser: Parser, value: object) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    given = parser.fields(value, ("plan",), PLAN)
    if len(given) != 1 or not all(isinstance(name, str) and name for name in given.values()):
        parser.error(("plan",), f"expected {{trusted_header: name}} or {{claim: name}}; got {shown(value)}")
        return None, None
    header = given.get("trusted_header")
    return (header.lower() if header else None), given.get("claim")
