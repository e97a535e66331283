"""An index of a policy's rules by method and path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.caches import PathCache
from headgate.policy.key import Params
from headgate.policy.path import Pattern, tidy
from headgate.policy.rule import Rule

MOST_SETS: Final = 4096
NOTHING: Final[Params] = {}


class RuleSet:
    """Rules that match a method and a path, in order. Paths are many, sets of rules are few: each is made once."""

    __slots__ = ("_named", "found", "plain", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.plain = True
        """Whether method and path alone decide that the rules apply."""
        same, named, pairs = True, [], []
        for rule in rules:  # one loop: a set is made while a request waits
            if rule.match.conditions or rule.exempt:
                self.plain = False
            patterns = rule.match.patterns if rule.by_params else ()
            same = same and not patterns
            named.append((rule, patterns))
            pairs.append((rule, NOTHING))
        self._named = tuple(named)
        self.found = MatchedRules(self, tuple(pairs)) if same else None
        """The result for every path, if no key needs a `{name}` of the path; otherwise None."""

    def at(self, path: str) -> MatchedRules:
        """Return the result for one path, if it depends on the path."""
        return MatchedRules(self, tuple([(rule, _named(patterns, path)) for rule, patterns in self._named]))


class MatchedRules(NamedTuple):
    """The rules whose methods and paths match a request, in order, each with the named segments for its key."""

    set: RuleSet
    pairs: tuple[tuple[Rule, Params], ...]


class RuleIndex:
    """Finds the rules of a method and a path."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self.pathless = not any(rule.match.patterns for rule in rules)
        """Whether no rule has a path: then all paths have the same rules."""
        self._anywhere: list[Rule] = []
        """Rules for paths with any first segment."""
        self._by_segment: dict[str, list[Rule]] = {}
        """Rules by the first segment of their paths, together with those for any segment, in order."""
        for rule in rules:
            self._file(rule)
        self._sets: dict[tuple[int, ...], RuleSet] = {}
        self.found: PathCache[MatchedRules] = PathCache(self.find)
        """The cached results by method and path."""

    def _file(self, rule: Rule) -> None:
        firsts = {pattern.first for pattern in rule.match.patterns}
        if not firsts or None in firsts:
            for near in (self._anywhere, *self._by_segment.values()):
                near.append(rule)
        else:
            for first in firsts:
                self._by_segment.setdefault(first or "", list(self._anywhere)).append(rule)

    def find(self, method: str, path: str) -> MatchedRules:
        """Return the rules that match, in order, each with the named segments of its path."""
        path = tidy(path)
        indexes = []
        for rule in self._by_segment.get(path[1:].partition("/")[0], self._anywhere):
            methods, patterns, _, messages = rule.match
            if (methods is not None and method not in methods) or (method == "MESSAGE" and not messages):
                continue
            if not patterns:
                indexes.append(rule.index)
            for pattern in patterns:
                if pattern.fits(path):
                    indexes.append(rule.index)
                    break
        fitting = self._sets.get(tuple(indexes)) or self._set_of(tuple(indexes))
        return fitting.found or fitting.at(path)

    def _set_of(self, indexes: tuple[int, ...]) -> RuleSet:
        made = RuleSet(tuple(map(self._rules.__getitem__, indexes)))
        if len(self._sets) < MOST_SETS:
            self._sets[indexes] = made
        return made


def _named(patterns: Sequence[Pattern], path: str) -> Params:
    """Return the named segments of the first pattern that matches."""
    for pattern in patterns:
        named = pattern.fit(path)
        if named is not None:
            return named
    return NOTHING
