"""Rules that match no route of the app: with a typo in its path, or a prefix too many, a rule counts nothing.

If a framework knows its routes, they are compared with the rules once, at the first request under a policy. A route for
any path (a mount, static files, a catch-all) matches every rule below it, so that no warning is wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headgate.policy import Policy
from headgate.policy.edges import Pattern, Rule, Segment, tidy
from headgate.wording import log_of

NOT_FOUND: Final = 404
ALIKE: Final = 0.8
MOST_MIDDLEWARE: Final = 64
MOST_LOOKED_FOR: Final = 20
"""The number of patterns for which the nearest route is searched: longer lists of missing paths are intended."""
ANSWERED_ELSEWHERE: Final = frozenset(("OPTIONS", "TRACE", "CONNECT"))
"""Methods that servers and middleware answer, without a route."""

log = log_of("headgate.web")


class Wild(Enum):
    """A part of a route whose text is not fixed."""

    ONE = "one segment"
    MANY = "any number of segments, also none"


Part = str | Wild


class Route(NamedTuple):
    """A route of an app."""

    template: str
    """The path as the app writes it."""
    parts: tuple[Part, ...]
    methods: frozenset[str] | None
    """The methods that it answers; None for any."""


def read_route(template: str, methods: Iterable[str] | None, one: str, many: str) -> Route:
    """Read a route from its template; segments in which these regular expressions match are wild."""

    def read(word: str) -> Part:
        return Wild.MANY if re.search(many, word) else Wild.ONE if re.search(one, word) else word

    parts = tuple(read(word) for word in tidy(template)[1:].split("/"))
    return Route(template, parts, None if methods is None else frozenset(methods))


def tell_of_unreached(policy: Policy, routes: Iterable[Route]) -> None:
    """Log the rules that count nothing; at INFO if no route is similar, as such a rule may be for scanners."""
    for words, near in unreached(policy, list(routes)):
        log.log(logging.WARNING if near else logging.INFO, words)


def unreached(policy: Policy, routes: Sequence[Route]) -> Iterator[tuple[str, bool]]:
    """Yield a message for each pattern that matches no route, and whether some route is similar."""
    looked_for = 0
    for rule in policy.rules if routes else ():
        if rule.act.kind == "shadow" or NOT_FOUND in (rule.count.statuses or ()):
            continue  # such rules are for paths without a route
        for pattern in rule.match.patterns:
            met = [each for each in routes if meets(pattern, each.parts)]
            if met:
                other = _other_methods(rule, met)
                if other:
                    yield f"rule {rule.name} counts nothing at {pattern.text}: {other}", True
                continue
            looked_for += 1
            nearest = _nearest(pattern, routes) if looked_for <= MOST_LOOKED_FOR else None
            hint = f"; the nearest is {nearest.template}" if nearest is not None else ""
            yield f"rule {rule.name} counts nothing at {pattern.text}: the app has no such route{hint}", bool(hint)


def _other_methods(rule: Rule, met: Sequence[Route]) -> str:
    """Return a message if none of these routes answers a method of the rule, else an empty string."""
    methods = rule.match.methods
    if methods is None or methods & ANSWERED_ELSEWHERE or any(not each.methods for each in met):
        return ""
    answered = frozenset(method for each in met for method in each.methods or ())
    named, there = (" and ".join(sorted(each)) for each in (methods, answered))
    return "" if methods & answered else f"it is for {named}, and the route answers {there}"


def meets(pattern: Pattern, parts: Sequence[Part]) -> bool:
    """Return whether some path matches both."""
    if pattern.first is not None and isinstance(parts[0], str) and parts[0] != pattern.first:
        return False
    wanted: list[Segment | None] = [*pattern.head, *([None] if pattern.stars or pattern.rest else ()), *pattern.middle]
    wanted += [*([None] if pattern.stars > 1 else ()), *pattern.tail]
    row = [True] + [False] * len(parts)  # row[j]: the pattern so far matches the first j parts
    for j, part in enumerate(parts):
        row[j + 1] = row[j] and part is Wild.MANY
    for segment in wanted:
        before, row = row, [segment is None and row[0], *[False] * len(parts)]
        for j, part in enumerate(parts):
            if segment is None:
                row[j + 1] = before[j + 1] or row[j]
            elif part is Wild.MANY:
                row[j + 1] = row[j] or before[j + 1] or before[j]
            else:
                row[j + 1] = before[j] and (part is Wild.ONE or segment.fits(part))
    return row[-1]


def _nearest(pattern: Pattern, routes: Sequence[Route]) -> Route | None:
    """Return the route most similar to a pattern, or None: more than half of the shorter's words must be in both."""
    words = [word for word in tidy(pattern.text)[1:].split("/") if word and not re.search(r"[*{]", word)]
    near = [each for each in routes if _alike(words, [part for part in each.parts if isinstance(part, str) and part])]
    return max(near, key=lambda each: SequenceMatcher(None, pattern.text, each.template).ratio(), default=None)


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    common = [0] * (len(other) + 1)
    for word in one:
        diagonal = 0
        for j, each in enumerate(other):
            longest = diagonal + 1 if _same(word, each) else max(common[j], common[j + 1])
            diagonal, common[j + 1] = common[j + 1], longest
    return 2 * common[-1] > min(len(one), len(other)) > 0


@lru_cache(maxsize=65_536)
def _same(word: str, other: str) -> bool:
    if word == other:
        return True
    if word[0] != other[0] and word[-1] != other[-1]:  # cheap, and no typo changes both ends
        return False
    longest = (2 - ALIKE) / ALIKE * min(len(word), len(other))
    return max(len(word), len(other)) <= longest and SequenceMatcher(None, word, other).ratio() >= ALIKE


def router_behind(app: Any) -> Any:  # noqa: ANN401
    """Return the app behind other middleware that has a list of routes, or None."""
    for _ in range(MOST_MIDDLEWARE):
        app = getattr(app, "__self__", app)  # of `app.wsgi_app`
        if hasattr(app, "url_map") or isinstance(getattr(app, "routes", None), list):
            return app
        app = getattr(app, "app", None)
    return None


def routes_below(app: Any) -> list[Route] | None:  # noqa: ANN401
    """Return the routes of an app behind other middleware, or None if its framework has no list of them."""
    found = router_behind(app)
    if found is None:
        return None
    if hasattr(found, "url_map"):
        from headgate.web.werkzeug_routes import routes_in
    else:
        from headgate.web.starlette_routes import routes_in
    return list(routes_in(found))
