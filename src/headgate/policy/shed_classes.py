"""The classes of requests for a load shedder: by conditions, or by a header of a trusted proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headgate.policy.match import Match, Predicate, read_match
from headgate.policy.parser import Parser
from headgate.policy.path import tidy
from headgate.policy.source import Path_
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView
from headgate.wording import shown

ORDER: Final = ("critical_plus", "critical", "sheddable_plus", "sheddable")


class Candidates(NamedTuple):
    """The classes that requests with one method and one path may have."""

    exempt: tuple[Predicate, ...] | None
    """The conditions under which a request is exempt: empty if all are, None if none is."""
    classes: tuple[tuple[str, tuple[Predicate, ...]], ...]
    """Classes in order, each with its conditions; the last has none."""

    @property
    def only(self) -> str | None:
        """The class of all these requests; None if it depends on more than method and path, or if they are exempt."""
        return self.classes[0][0] if self.exempt is None and len(self.classes) == 1 else None

    def class_of(self, view: RequestView) -> str | None:
        """Return the class of a request; None if it is exempt."""
        if self.exempt is not None and _hold(self.exempt, view):
            return None
        return next(name for name, conditions in self.classes if _hold(conditions, view))


class Classes:
    """The order of classes, and the conditions by which a request gets one."""

    def __init__(self, order: tuple[str, ...], matches: Mapping[str, Match], exempt: Match | None) -> None:
        self.order = order
        self.critical = frozenset(order[: (len(order) + 1) // 2])
        """The classes that the workers and the fleet's reserve never shed."""
        self.default = next((name for name in order if name not in self.critical), order[-1])
        self._matches, self._exempt = matches, exempt

    def candidates(self, method: str, path: str) -> Candidates:
        """Return the classes that requests with this method and path may have."""
        method, path = method.upper(), tidy(path)
        found: list[tuple[str, tuple[Predicate, ...]]] = []
        for name, match in self._matches.items():
            if _fits(match, method, path):
                found.append((name, match.conditions))
                if not match.conditions:
                    break
        else:
            found.append((self.default, ()))
        exempt = self._exempt
        if exempt is None or not _fits(exempt, method, path):
            return Candidates(None, tuple(found))
        return Candidates(exempt.conditions, tuple(found))


def _fits(match: Match, method: str, path: str) -> bool:
    if match.methods is not None and method not in match.methods:
        return False
    return not match.patterns or any(pattern.fits(path) for pattern in match.patterns)


def _hold(conditions: tuple[Predicate, ...], view: RequestView) -> bool:
    """Whether all conditions hold; a value that cannot be read fits none, and the rules refuse its request."""
    try:
        return all(condition(view) for condition in conditions)
    except Unclear:
        return False


def read_order(parser: Parser, value: object, path: Path_) -> tuple[str, ...]:
    """Read the names of the classes, the most important first."""
    if not isinstance(value, list | tuple) or not value:
        parser.error(path, f"expected a list of classes, the most important first; got {shown(value)}")
        return ORDER
    for name in value:
        if not isinstance(name, str) or not name:
            parser.error(path, f"the name of a class is a text; got {shown(name)}")
            return ORDER
    if len(set(value)) < len(value):
        parser.error(path, f"each class needs a name of its own; got {shown(value)}")
        return ORDER
    return tuple(value)


def read_classes(parser: Parser, given: Mapping[str, Any], path: Path_, order: tuple[str, ...]) -> Classes:
    """Read the conditions of classes, and those of exempt requests."""
    conditions = given.get("classes", {})
    if not isinstance(conditions, Mapping):
        at = (*path, "classes")
        parser.error(
            at, f"expected classes and conditions, as in {{critical: {{path: /pay}}}}; got {shown(conditions)}"
        )
        conditions = {}
    matches: dict[str, Match] = {}
    for name, condition in conditions.items():
        at = (*path, "classes", str(name))
        if parser.one_of(name, at, order) is not None:
            matches[name] = read_match(parser, condition, at)
    exempt = read_match(parser, given["exempt"], (*path, "exempt"), every=True) if "exempt" in given else None
    return Classes(order, matches, exempt)
