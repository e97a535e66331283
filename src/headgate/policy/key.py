"""Keys: the values that a rule counts by. Parts are joined so that different values never make the same key.

A part that was not sent is not the same as one that is empty. Values that may be secret (headers, cookies, query
parameters) are hashed before any other code sees them, and so are long values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

from headgate.policy.client_key import AddressPart
from headgate.policy.field_types import WORD, Field, Fields
from headgate.policy.hashing import Hash, hashed, remembering
from headgate.policy.key_escaping import EMPTY, ClientKey, Write, writer
from headgate.policy.match import Values, trusted_header
from headgate.policy.parser import Parser
from headgate.policy.path import tidy
from headgate.policy.source import Path_
from headgate.policy.values import COOKIE, MOST_VALUES, QUERY, Kind, Repeated, Unclear, kind_of_header
from headgate.policy.view import RequestView, informed
from headgate.wording import listed, shown

Params = Mapping[str, str]
Part = Callable[[RequestView, Params], str | None]
WORDS: Final = ("ip", "user", "plan", "host", "method", "path", "route", "everyone")
NAMED: Final[Fields] = {
    "header": Field("A request header. Its value is hashed.", WORD),
    "trusted_header": Field("A request header that only a trusted proxy may set.", WORD),
    "cookie": Field("A cookie. Its value is hashed.", WORD),
    "query": Field("A query parameter. Its value is hashed.", WORD),
    "claim": Field("A claim of a token that the app or the policy's `tokens` verified.", WORD),
    "param": Field("A {name} in the rule's path.", WORD),
    "constant": Field("A fixed text: all requests of this rule share it.", WORD),
}
LONGEST_KEY: Final = 1024
"""Characters, so at most 4,096 bytes."""


def read_key(parser: Parser, value: object, path: Path_, names: Collection[str]) -> tuple[Part, ...]:
    """Read a rule's `key`: one part or several."""
    given = value if isinstance(value, list | tuple) else [value]
    if not given:
        parser.error(path, "a key needs at least one part, such as ip")
    several = isinstance(value, list | tuple)
    return tuple(_read_part(parser, each, (*path, at) if several else path, names) for at, each in enumerate(given))


def _read_part(parser: Parser, value: object, path: Path_, names: Collection[str]) -> Part:
    if callable(value):
        function, written = parser.function(value, path), writer(parser.hashed)
        return lambda view, params: written(function(view))
    if isinstance(value, str):
        word = parser.one_of(value, path, WORDS)
        return _words(writer(parser.hashed), parser.client_key)[word or "ip"]
    found = parser.fields(value, path, NAMED)
    if len(found) != 1:
        parser.error(path, f"a part of a key is one of {', '.join(WORDS)} or {{header: name}}; got {shown(value)}")
        return AddressPart(parser.client_key)
    kind, name = next(iter(found.items()))
    if not isinstance(name, str) or not name:
        parser.error((*path, kind), f"expected a name; got {shown(name)}")
        return AddressPart(parser.client_key)
    if kind == "param" and name not in names:
        known = f"the path has {listed(names)}" if names else "the rule's path has none"
        parser.error((*path, kind), f"no {{{name}}} in the path; {known}")
    return _NAMED[kind](name, parser)


def part_names(value: object) -> tuple[str, ...]:
    """Return the names of a key's parts for messages: `user`, `header x-api-key`."""
    given = value if isinstance(value, list | tuple) else [value]
    return tuple(each if isinstance(each, str) else _part_name(each) for each in given)


def _part_name(value: object) -> str:
    return " ".join(map(str, next(iter(value.items()), ()))) if isinstance(value, Mapping) else "a function's value"


def key_of(parts: Sequence[Part], view: RequestView, params: Params, instead: str | None = None) -> str | None:
    """Return the key of a request; None if a part is missing and there is no value to use `instead`."""
    values = []
    for part in parts:
        value = part(view, params)
        if value is None:
            if instead is None:
                return None
            value = instead
        values.append(value)
    return values[0] if len(values) == 1 else join(values)


def keys_of(parts: Sequence[Part], view: RequestView, params: Params, instead: str | None = None) -> list[str] | None:
    """Like `key_of`, but with a key for each value of a part that was sent several times."""
    found: list[Sequence[str]] = []
    for part in parts:
        values = part.every(view) if isinstance(part, SentPart) else [part(view, params)]
        known = [value for value in values if value is not None] or ([] if instead is None else [instead])
        if not known:
            return None
        found.append(known)
    if prod(map(len, found)) > MOST_VALUES:
        raise Unclear("key of the request", f"has more than {MOST_VALUES} values")
    return [values[0] if len(values) == 1 else join(list(values)) for values in product(*found)]


def is_missing(part: Part, view: RequestView, params: Params) -> bool:
    """Whether a part was not sent; a part with different values was sent."""
    try:
        return part(view, params) is None
    except Unclear:
        return False


def join(parts: list[str]) -> str:
    """Join parts to one key: escaped, so that a|b and c differ from a and b|c; hashed if the key is long."""
    joined = "|".join(part.replace("|", "\\p") for part in parts)
    return joined if len(joined) <= LONGEST_KEY else hashed(joined)


@lru_cache(maxsize=64)
def hashing_of(digest: Hash, kind: Kind) -> Callable[[str], str]:
    """Return a function that hashes the plain form of a value that may be secret; results are cached."""

    def kept(value: str) -> str:
        plain = kind.plain(value)
        if plain is None:
            raise ValueError
        return digest(plain) if plain else EMPTY

    return remembering(kept)


class SentPart:
    """A part of a key that a client sends, perhaps several times."""

    __slots__ = ("_kind", "_name", "_repeated", "_values", "_write")

    def __init__(
        self, kind: Kind, name: str, values: Values, write: Callable[[str], str | None], repeated: Repeated
    ) -> None:
        self._kind, self._name, self._values, self._write, self._repeated = kind, name, values, write, repeated

    def __call__(self, view: RequestView, params: Params) -> str | None:
        """Return the value; None if none was sent."""
        values = self._values(view, self._name)
        if not values:
            return None
        value = values[0] if len(values) == 1 else self._kind.one(self._name, values, self._repeated)
        try:
            return self._write(value)
        except ValueError:
            self._kind.said(self._name, value)  # raises the reason
            raise

    def every(self, view: RequestView) -> list[str | None]:
        """Return each distinct value."""
        values = self._values(view, self._name)
        for value in values:
            self._kind.said(self._name, value)
        return list(dict.fromkeys(map(self._write, values)))


def route_part(view: RequestView, params: Params) -> str | None:
    """Return the template of the route, if the framework has found it. It is never hashed: the app wrote it."""
    route = view.route
    return route.replace("\\", "\\\\") if route else None


def _words(written: Write, keyed: ClientKey) -> dict[str, Part]:
    return {
        "ip": AddressPart(keyed),
        "user": lambda view, params: written(view.user),
        "plan": lambda view, params: written(view.plan),
        "host": _host(written),
        "method": lambda view, params: written("GET" if view.method == "HEAD" else view.method),
        "path": lambda view, params: written(tidy(view.path)),
        "route": route_part,
        "everyone": lambda view, params: "*",
    }


def _host(written: Write) -> Part:
    def host(view: RequestView, params: Params) -> str | None:
        hosts = view.hosts
        if len(hosts) > 1:
            raise Unclear("host", "was sent more than once, with different values")
        return written(hosts[0]) if hosts[0] or view.host_lines() else None

    return host


def _sent(kind: Kind | None, values: Values) -> Callable[[str, Parser], Part]:
    """Return a function that makes the part of a name; without a kind, names are those of headers."""

    def part(name: str, parser: Parser) -> Part:
        field = name if kind else name.lower()
        own = kind or kind_of_header(field)
        return SentPart(own, field, values, hashing_of(parser.hashed, own), parser.repeated)

    return part


def _trusted_header(name: str, parser: Parser) -> Part:
    field, written = name.lower(), writer(parser.hashed)
    kind = kind_of_header(field)
    return SentPart(kind, field, trusted_header, lambda value: written(kind.plain(value)), parser.repeated)


def _claim(name: str, parser: Parser) -> Part:
    claims_of, written = informed(_claims, parser.claims_of), writer(parser.hashed)

    def claim(view: RequestView, params: Params) -> str | None:
        claims = claims_of(view)
        value = claims.get(name) if claims is not None else None
        return written(value) if isinstance(value, str | int) else None

    return claim


def _claims(view: RequestView) -> Mapping[str, Any] | None:
    return view.claims


def _param(name: str, parser: Parser) -> Part:
    written = writer(parser.hashed)
    return lambda view, params: written(params.get(name))


def _constant(text: str, parser: Parser) -> Part:
    written = writer(parser.hashed)(text)
    return lambda view, params: written


_NAMED: Final[dict[str, Callable[[str, Parser], Part]]] = {
    "header": _sent(None, RequestView.header_values),
    "trusted_header": _trusted_header,
    "cookie": _sent(COOKIE, RequestView.cookie_values),
    "query": _sent(QUERY, RequestView.query_values),
    "claim": _claim,
    "param": _param,
    "constant": _constant,
}
