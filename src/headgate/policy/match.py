"""Predicates: the requests that a rule applies to.

A mapping of predicates holds when all of them do; a list of values when one does; `any`, `all` and `not` mix them.

A client may send a name twice. `match` and `deny` hold when one of the values fits; `allow` and `exempt` only when all
of them do (`every`). Inside `not` this is reversed, so a client gains nothing by sending more values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.policy.address import Networks
from headgate.policy.field_types import TEXT, Field, Fields, array, named, names_to, some
from headgate.policy.numbers import read_range
from headgate.policy.parser import Parser
from headgate.policy.path import Pattern, compile_host, compile_pattern
from headgate.policy.source import Path_
from headgate.policy.values import COOKIE, HEADER, QUERY, Kind, kind_of_header
from headgate.policy.view import RequestView
from headgate.wording import shown

Predicate = Callable[[RequestView], bool]
METHODS: Final = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "WEBSOCKET",
    "MESSAGE",
)
_NETWORK: Final = "^[0-9A-Fa-f:.]{2,45}(?:/[0-9]{1,3})?$"
FIELDS: Final[Fields] = {
    "method": Field(
        "One method or several, in upper or lower case. WEBSOCKET is the opening of a websocket, MESSAGE each "
        "message that arrives on one.",
        some(named("method")),
    ),
    "path": Field("One pattern or several; one of them must match the whole path.", some(named("path"))),
    "route": Field("The template of the route, if the framework finds it before it asks the policy.", some(TEXT)),
    "host": Field(
        "The Host header without its port; * matches any number of characters, as in *.example.com.", some(TEXT)
    ),
    "header": Field("Request headers. The case of a name does not matter.", names_to(named("wanted"))),
    "trusted_header": Field(
        "Request headers that only a trusted proxy may set. From other peers they are ignored.",
        names_to(named("wanted")),
    ),
    "query": Field("Query parameters.", names_to(named("wanted"))),
    "cookie": Field("Cookies.", names_to(named("wanted"))),
    "ip": Field(
        "Addresses and networks, one of which contains the client's address.",
        some({"type": "string", "pattern": _NETWORK}),
    ),
    "plan": Field("The plan of the request.", some(TEXT)),
    "any": Field("At least one of these holds.", array(named("condition"))),
    "all": Field("All of these hold.", array(named("condition"))),
    "not": Field("This does not hold.", named("condition")),
}


class Match(NamedTuple):
    """The condition of a rule. Methods and paths are separate because rules are indexed by them."""

    methods: frozenset[str] | None
    patterns: tuple[Pattern, ...]
    conditions: tuple[Predicate, ...]
    messages: bool = False
    """Whether it names the method MESSAGE: only such rules count the messages of a websocket."""

    def holds(self, view: RequestView) -> bool:
        """Whether a request fits; the rules of a policy are found by their index instead."""
        if self.methods is not None and view.method not in self.methods:
            return False
        if self.patterns and not any(pattern.match(view.path) is not None for pattern in self.patterns):
            return False
        return all(condition(view) for condition in self.conditions)

    def covers(self, other: Match) -> bool:
        """Whether every method and path of the other one fits here too."""
        if other.messages and not self.messages:
            return False
        methods = self.methods is None or (other.methods is not None and other.methods <= self.methods)
        wide, narrow = self.patterns, other.patterns
        return methods and (
            not wide or (bool(narrow) and all(any(each.fits_all_of(one) for each in wide) for one in narrow))
        )


def read_match(parser: Parser, value: object, path: Path_, every: bool = False) -> Match:
    """Read a rule's `match`; with `every`, all values that a client sends must fit, else one."""
    if callable(value):
        return Match(None, (), (parser.condition(value, path),))
    given = parser.fields(value, path, FIELDS)
    methods = _methods(parser, given["method"], (*path, "method")) if "method" in given else None
    patterns = _patterns(parser, given["path"], (*path, "path")) if "path" in given else ()
    rest = {name: given[name] for name in given if name not in ("method", "path")}
    return Match(methods, patterns, tuple(_conditions(parser, rest, path, every)), _names_messages(given))


def _names_messages(value: object) -> bool:
    if isinstance(value, Mapping):
        named = value.get("method")
        words = named if isinstance(named, list | tuple) else [named]
        return any(isinstance(word, str) and word.upper() == "MESSAGE" for word in words) or any(
            _names_messages(value.get(mix)) for mix in ("any", "all", "not")
        )
    return isinstance(value, list | tuple) and any(map(_names_messages, value))


def read_condition(parser: Parser, value: object, path: Path_, every: bool = False) -> Predicate:
    """Read a condition as one predicate; with `every`, all values that a client sends must fit, else one."""
    if callable(value):
        return parser.condition(value, path)
    given = parser.fields(value, path, FIELDS)
    return _all(_conditions(parser, given, path, every))


def _conditions(parser: Parser, given: Mapping[str, Any], path: Path_, every: bool) -> list[Predicate]:
    return [_READERS[name](parser, value, (*path, name), every) for name, value in given.items()]


def _methods(parser: Parser, value: object, path: Path_) -> frozenset[str]:
    words = [word.upper() for word in parser.words(value, path, "a method such as GET")]
    for word in words:
        if word not in METHODS:
            parser.one_of(word, path, METHODS)
    if "GET" in words:
        words.append("HEAD")  # frameworks answer HEAD with the handler of GET, which would run uncounted
    return frozenset(words)


def _patterns(parser: Parser, value: object, path: Path_) -> tuple[Pattern, ...]:
    compiled = []
    for word in parser.words(value, path, "a path such as /api/**"):
        try:
            compiled.append(compile_pattern(word))
        except ValueError as reason:
            parser.error(path, str(reason))
    return tuple(compiled)


def _method(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    methods = _methods(parser, value, path)
    return lambda view: view.method in methods


def _path(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    patterns = _patterns(parser, value, path)
    return lambda view: any(pattern.match(view.path) is not None for pattern in patterns)


def _route(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    routes = frozenset(parser.words(value, path, "a route template such as /users/{id}"))
    return lambda view: view.route in routes


def _host(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    tests = []
    for word in parser.words(value, path, "a host such as *.example.com"):
        try:
            tests.append(compile_host(word))
        except ValueError as reason:
            parser.error(path, str(reason))

    fitting = all if every else any

    def fits(view: RequestView) -> bool:
        return fitting(any(test(host) for test in tests) for host in view.hosts)

    return fits


def _ip(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    try:
        networks = Networks(parser.words(value, path, "an address or a network such as 10.0.0.0/8"))
    except InvalidCall as reason:
        parser.error(path, str(reason))
        networks = Networks(())
    return lambda view: bool(view.client) and view.client in networks


def _plan(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    plans = frozenset(parser.words(value, path, "a plan"))
    return lambda view: view.plan in plans


Values = Callable[[RequestView, str], Sequence[str]]
"""All values that a request sends under a name, as they were sent."""


def _of(values: Values, kind: Kind) -> Callable[..., Predicate]:
    """A reader of named values: `{name: value}`, `{name: [values]}`, `{name: true}` for any, `false` for none, and
    `{name: {below: 30}}` for numbers."""

    def read(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
        if not isinstance(value, Mapping) or not value:
            parser.error(path, f"expected names and values, as in {{x-plan: pro}}; got {shown(value)}")
            return lambda view: False
        tests = []
        for name, wanted in value.items():
            field = str(name).lower() if kind is HEADER else str(name)
            own = kind_of_header(field) if kind is HEADER else kind
            if isinstance(wanted, bool):
                tests.append(_present(values, field, wanted))
            elif isinstance(wanted, Mapping):
                tests.append(_within(values, own, field, read_range(parser, wanted, (*path, str(name))), every))
            else:
                words = parser.words(wanted, (*path, str(name)), "a value, true or false")
                tests.append(_equals(values, own, field, frozenset(map(own.wanted, words)), every))
        return _all(tests)

    return read


def _present(values: Values, field: str, wanted: bool) -> Predicate:
    return lambda view: bool(values(view, field)) is wanted


def _within(values: Values, kind: Kind, field: str, fits: Callable[[str], bool], every: bool) -> Predicate:
    fitting = all if every else any

    def holds(view: RequestView) -> bool:
        sent = values(view, field)
        return bool(sent) and fitting(fitting(map(fits, kind.may_be(value))) for value in sent)

    return holds


def _equals(values: Values, kind: Kind, field: str, words: frozenset[str], every: bool) -> Predicate:
    def fits(view: RequestView) -> bool:
        sent = values(view, field)
        if not sent:
            return False
        plain = kind.plain(sent[0]) if len(sent) == 1 else None
        if plain is not None:
            return plain in words
        if every:
            return all(kind.plain(value) in words for value in sent)
        if len(sent) > 1 and kind is not QUERY and kind is not COOKIE:
            sent = [*sent, ", ".join(sent), ",".join(sent)]  # some frameworks join the lines of a header
        return any(not words.isdisjoint(kind.may_be(value)) for value in sent)

    return fits


def trusted_header(view: RequestView, name: str) -> Sequence[str]:
    """Return the values of a header that only a trusted proxy may set: from other peers, none."""
    return view.header_values(name) if view.from_trusted_peer else ()


def _any(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    tests = _several(parser, value, path, every)
    return lambda view: any(test(view) for test in tests)


def _every(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    return _all(_several(parser, value, path, every))


def _not(parser: Parser, value: object, path: Path_, every: bool) -> Predicate:
    test = read_condition(parser, value, path, not every)
    return lambda view: not test(view)


def _several(parser: Parser, value: object, path: Path_, every: bool) -> list[Predicate]:
    if not isinstance(value, list | tuple) or not value:
        parser.error(path, f"expected a list of conditions; got {shown(value)}")
        return []
    return [read_condition(parser, each, (*path, at), every) for at, each in enumerate(value)]


def _all(tests: list[Predicate]) -> Predicate:
    if len(tests) == 1:
        return tests[0]
    return lambda view: all(test(view) for test in tests)


_READERS: Final[dict[str, Callable[[Parser, Any, Path_, bool], Predicate]]] = {
    "method": _method,
    "path": _path,
    "route": _route,
    "host": _host,
    "header": _of(RequestView.header_values, HEADER),
    "trusted_header": _of(trusted_header, HEADER),
    "query": _of(RequestView.query_values, QUERY),
    "cookie": _of(RequestView.cookie_values, COOKIE),
    "ip": _ip,
    "plan": _plan,
    "any": _any,
    "all": _every,
    "not": _not,
}
