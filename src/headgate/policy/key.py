"""Keys: what a rule counts by. Parts are joined so that no two requests share a key by accident, or on purpose.

A part that was not sent is not the same as one that is empty. Values that may be secret (headers, cookies) are hashed
before anything else sees them, and so is whatever is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from headgate.errors import InvalidCall
from headgate.policy.address import counted
from headgate.policy.match import trusted_header
from headgate.policy.reading import Reading, shown
from headgate.policy.source import Path_
from headgate.policy.view import RequestView

Params = Mapping[str, str]
Part = Callable[[RequestView, Params], str | None]
WORDS: Final = ("ip", "user", "plan", "host", "method", "path", "route", "everyone")
NAMED: Final = ("header", "trusted_header", "cookie", "query", "claim", "param", "constant")
LONGEST_PART: Final = 128
LONGEST_KEY: Final = 1024
"""Characters, so at most 4,096 bytes."""
EMPTY: Final = "\\e"
MISSING: Final = "\\m"


def read_key(reading: Reading, value: object, path: Path_, names: frozenset[str]) -> tuple[Part, ...]:
    """A rule's `key`: one part or several."""
    given = value if isinstance(value, list | tuple) else [value]
    if not given:
        reading.mistake(path, "a key has at least one part, such as ip")
    several = isinstance(value, list | tuple)
    return tuple(_read_part(reading, each, (*path, at) if several else path, names) for at, each in enumerate(given))


def _read_part(reading: Reading, value: object, path: Path_, names: frozenset[str]) -> Part:
    if callable(value):
        function = value
        return lambda view, params: _written(function(view))
    if isinstance(value, str):
        word = reading.one_of(value, path, WORDS)
        return _WORDS.get(word or "ip", _ip)
    found = reading.fields(value, path, NAMED)
    if len(found) != 1:
        reading.mistake(path, f"a part of a key is one of {', '.join(WORDS)} or {{header: name}}; got {shown(value)}")
        return _ip
    kind, name = next(iter(found.items()))
    if not isinstance(name, str) or not name:
        reading.mistake((*path, kind), f"expected a name; got {shown(name)}")
        return _ip
    if kind == "param" and name not in names:
        known = f"the path has {', '.join(sorted(names))}" if names else "the rule's path has none"
        reading.mistake((*path, kind), f"no {{{name}}} in the path; {known}")
    return _NAMED[kind](name)


def join(parts: list[str]) -> str:
    """One key from several parts: escaped, so that a|b and c are never a and b|c; hashed where that is long."""
    joined = "|".join(part.replace("|", "\\p") for part in parts)
    return joined if len(joined) <= LONGEST_KEY else hashed(joined)


def fallback_key(view: RequestView) -> str | None:
    """What stands for a missing part: the client's address, marked so that nobody's value can look like it."""
    address = view.client
    return MISSING + client_key(address) if address else None


@lru_cache(maxsize=16_384)
def client_key(client: str) -> str:
    """What a client is counted as: an IPv6 address by its network, a name as it is."""
    try:
        return counted(client)
    except InvalidCall:
        return _written(client) or EMPTY


@lru_cache(maxsize=16_384)
def hashed(value: str) -> str:
    """128 bits of BLAKE2b: what a store, a log or a label may see of a secret."""
    return "\\h" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _written(value: object) -> str | None:
    """A value as a part: escaped, hashed where it is long."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    if not text:
        return EMPTY
    if len(text) > LONGEST_PART:
        return hashed(text)
    return text.replace("\\", "\\\\") if "\\" in text else text


def _lower(value: str | None) -> str | None:
    return None if value is None else value.lower()


def _secret(value: str | None) -> str | None:
    return None if value is None else hashed(value) if value else EMPTY


def _ip(view: RequestView, params: Params) -> str | None:
    address = view.client
    return client_key(address) if address else None


_WORDS: Final[dict[str, Part]] = {
    "ip": _ip,
    "user": lambda view, params: _written(view.user),
    "plan": lambda view, params: _written(view.plan),
    "host": lambda view, params: _written(_lower(view.header("host"))),
    "method": lambda view, params: _written(view.method),
    "path": lambda view, params: _written(view.path),
    "route": lambda view, params: _written(view.route),
    "everyone": lambda view, params: "*",
}


def _claim(name: str) -> Part:
    def claim(view: RequestView, params: Params) -> str | None:
        value: Any = view.claims.get(name) if view.claims is not None else None
        return _written(value) if isinstance(value, str | int) else None

    return claim


def _constant(text: str) -> Part:
    written = _written(text)
    return lambda view, params: written


def _header(name: str) -> Part:
    field = name.lower()
    return lambda view, params: _secret(view.header(field))


def _trusted_header(name: str) -> Part:
    field = name.lower()
    return lambda view, params: _written(trusted_header(view, field))


_NAMED: Final[dict[str, Callable[[str], Part]]] = {
    "header": _header,
    "trusted_header": _trusted_header,
    "cookie": lambda name: lambda view, params: _secret(view.cookie(name)),
    "query": lambda name: lambda view, params: _written(view.query(name)),
    "claim": _claim,
    "param": lambda name: lambda view, params: _written(params.get(name)),
    "constant": _constant,
}
