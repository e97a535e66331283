"""The key of a rule from values that code gives: an operator names a user or an address, and sends no request.

Each value is written as the same value of a request would be: hashed, escaped, an address as its network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import InvalidCall
from headgate.policy.hashing import Hash
from headgate.policy.key import join
from headgate.policy.key_escaping import EMPTY, MISSING, ClientKey, Write, writer
from headgate.policy.path import plain_host, tidy
from headgate.policy.values import COOKIE, QUERY, Kind, kind_of_header
from headgate.wording import suggestion

if TYPE_CHECKING:
    from headgate.policy.rule import Rule

GivenKey = str | int | Sequence[Any] | Mapping[str, Any] | None
"""A value for a key of one part; for several parts, values in the rule's order or by the names of the parts."""
Writes = tuple[Write | str, ...]
"""For each part of a key, the function that writes its value; a text for a part that is the same for every request."""
EVERYONE: Final = "*"


def read_writes(value: object, digest: Hash, keyed: ClientKey) -> Writes:
    """Return how the values of a rule's `key` are written; the rule itself is checked elsewhere."""
    return tuple(_write_of(each, digest, keyed) for each in (value if isinstance(value, list | tuple) else [value]))


def _write_of(part: object, digest: Hash, keyed: ClientKey) -> Write | str:
    written = writer(digest)
    if part == "ip":
        return lambda value: keyed(str(value))
    if isinstance(part, str):
        return EVERYONE if part == "everyone" else _WORDS.get(part, _same)(written)
    if not isinstance(part, Mapping) or len(part) != 1:
        return written
    kind, name = next(iter(part.items()))
    if kind == "constant":
        return written(name) or EMPTY
    if kind == "trusted_header":
        plain = kind_of_header(str(name).lower()).wanted
        return lambda value: written(plain(str(value)))
    if kind in ("header", "cookie", "query"):
        return _hashing(_KINDS.get(kind) or kind_of_header(str(name).lower()), digest)
    return written


def _hashing(kind: Kind, digest: Hash) -> Write:
    def kept(value: object) -> str:
        plain = kind.wanted(str(value))
        return digest(plain) if plain else EMPTY

    return kept


def _same(written: Write) -> Write:
    return written


def _first(change: Callable[[str], str]) -> Callable[[Write], Write]:
    return lambda written: lambda value: written(change(str(value)))


def _method(text: str) -> str:
    return "GET" if text.upper() == "HEAD" else text.upper()


_WORDS: Final[dict[str, Callable[[Write], Write]]] = {
    "host": _first(plain_host),
    "method": _first(_method),
    "path": _first(tidy),
    "route": lambda written: lambda value: str(value).replace("\\", "\\\\"),
}
_KINDS: Final = {"cookie": COOKIE, "query": QUERY}


def key_from(rule: Rule, given: GivenKey, route: str | None = None) -> str:
    """Return the key that a request with these values is counted by; raise `InvalidCall` if a value is missing.

    `route` is that of an endpoint whose rule has its route as a part.
    """
    wanted = [name for name, write in zip(rule.parts, rule.writes, strict=True) if not isinstance(write, str)]
    if route is not None:
        wanted.remove("route")
    values = _by_name(rule, wanted, given)
    parts = []
    for name, write in zip(rule.parts, rule.writes, strict=True):
        if isinstance(write, str):
            parts.append(write)
        elif name == "route" and route is not None:
            parts.append(write(route) or EMPTY)
        else:
            value = values.get(name)
            parts.append(_instead(rule, wanted, values) if value is None else write(value) or EMPTY)
    return parts[0] if len(parts) == 1 else join(parts)


def _by_name(rule: Rule, wanted: list[str], given: GivenKey) -> Mapping[str, Any]:
    """Return the values by the names of their parts."""
    if isinstance(given, Mapping):
        known = [*wanted, *(["ip"] if rule.missing == "ip" and "ip" not in wanted else [])]
        for name in given:
            if name not in known:
                raise InvalidCall(f"the key of rule {rule.name} has no part {name!r}; {suggestion(str(name), known)}")
        return given
    values = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    if len(values) != len(wanted):
        raise InvalidCall(f"the key of rule {rule.name} needs {_form(wanted)}; got {len(values)} values")
    return dict(zip(wanted, values, strict=True))


def _form(wanted: list[str]) -> str:
    """Return what to write as the key."""
    if not wanted:
        return "no value, as it is the same for every request"
    return f"a value for {' and for '.join(wanted)}" + (", as a tuple in this order" if len(wanted) > 1 else "")


def _instead(rule: Rule, wanted: list[str], values: Mapping[str, Any]) -> str:
    """Return the replacement for a missing part: the client's address, if the rule counts such requests by it."""
    missing = " and ".join(name for name in wanted if values.get(name) is None)
    if rule.missing != "ip":
        raise InvalidCall(f"rule {rule.name} counts no request without {missing} (missing: {rule.missing})")
    if values.get("ip") is None:
        raise InvalidCall(
            f"{missing} of the key of rule {rule.name} is missing; give it or, for requests without it, the client's "
            "address, as in {'ip': '203.0.113.7'}"
        )
    return MISSING + rule.client_key(str(values["ip"]))
