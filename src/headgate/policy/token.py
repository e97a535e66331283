"""Claims of a token that the policy's own key verifies.

A token that cannot be verified, for any reason, counts as missing: so are its claims, and the rule's `missing` applies.
Only verified tokens are cached, so a client cannot fill the memory with invented ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headgate.caches import ClearedWhenFull
from headgate.policy.field_types import WORD, Field, Fields, Form, array, named
from headgate.policy.parser import Parser
from headgate.policy.secret import read_secret
from headgate.policy.source import Path_
from headgate.policy.values import HEADER, Repeated, Unclear, kind_of_header
from headgate.policy.view import RequestView
from headgate.wording import log_of, missing, shown

SHARED: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms whose key is a shared secret, and the least bytes of that secret by RFC 7518."""
PUBLIC: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_ALGORITHMS: Final[Form] = {
    "anyOf": [make(named(kind)) for make in (dict, array) for kind in ("shared_algorithm", "public_algorithm")]
}
FIELDS: Final[Fields] = {
    "key": Field("The public key in PEM, or the shared secret, that verifies tokens.", named("secret")),
    "algorithms": Field(
        ("Algorithms that a token may be signed with: either those of secrets (HS*) or those of public keys."),
        _ALGORITHMS,
    ),
    "header": Field("The request header that contains the token. Default: authorization, after Bearer.", WORD),
    "audience": Field(
        ("The audience (aud) that a token must name. Without this field, a token that names one is rejected."), WORD
    ),
    "issuer": Field("The issuer (iss) that a token must name.", WORD),
}
SHORTEST_RSA: Final = 2048
"""The least bits of an RSA key, by RFC 7518."""
AUTHORIZATION: Final = "authorization"
LONGEST_TOKEN: Final = 65_536
"""Characters; servers accept no longer header. A longer token is refused: the app might accept it."""
REMEMBERED: Final = 4096
"""The most verified tokens in the cache."""
_PATH: Final[Path_] = ("tokens",)
_NEEDS_JWT: Final = missing("verifying tokens", "PyJWT[crypto]", "jwt")

Decode = Callable[[str], Mapping[str, Any]]
log = log_of("headgate.policy")


class Verified(NamedTuple):
    """The claims of a verified token, and the times between which they are valid."""

    claims: Mapping[str, Any]
    since: float
    until: float


class Tokens:
    """Reads the claims of a request's token. `decode` raises any exception for a token that is not genuine."""

    def __init__(self, decode: Decode, header: str = AUTHORIZATION, now: Callable[[], float] = time.time) -> None:
        self.decode = decode
        self._header = header
        self._kind = kind_of_header(header)
        self.repeated: Repeated = "refuse"
        """The choice among different tokens in one request."""
        self.now = now
        """The clock, in seconds since the epoch, as in tokens."""
        self.known: ClearedWhenFull[bytes, Verified] = ClearedWhenFull(REMEMBERED)

    def claims(self, view: RequestView) -> Mapping[str, Any] | None:
        """Return the claims of the request's token; None without a token that is genuine and valid now."""
        token = self._token(view.header_values(self._header))
        if not token:
            return None
        if len(token) > LONGEST_TOKEN:
            raise Unclear(f"header {self._header}", f"has a token of more than {LONGEST_TOKEN} characters")
        name = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        found = self.known.get(name)
        if found is None:
            try:
                found = self.known.keep(name, _verified(self.decode(token)))
            except Exception as reason:  # a hostile token can make the parser raise anything
                log.debug("a token was rejected: %s", reason)
                return None
        return found.claims if found.since <= self.now() < found.until else None

    def _token(self, lines: Sequence[str]) -> str | None:
        if not lines:
            return None
        line = lines[0] if len(lines) == 1 else self._kind.one(self._header, lines, self.repeated)
        if self._header != AUTHORIZATION:
            return HEADER.plain(line)
        scheme, *token = line.split(None, 1) or ("",)
        return token[0].strip() if token and scheme.lower() == "bearer" else None


def _verified(claims: Mapping[str, Any]) -> Verified:
    return Verified(MappingProxyType(dict(claims)), _instant(claims, "nbf", -inf), _instant(claims, "exp", inf))


def _instant(claims: Mapping[str, Any], name: str, otherwise: float) -> float:
    instant = claims.get(name, otherwise)
    if isinstance(instant, bool) or not isinstance(instant, int | float):
        raise ValueError(f"{name} is not a time")
    return instant


def read_tokens(parser: Parser, value: object) -> Tokens | None:
    """Read a policy's `tokens`; None if errors leave no key or no algorithms."""
    given = parser.fields(value, _PATH, FIELDS)
    if isinstance(value, Mapping):
        for field in ("key", "algorithms"):
            if field not in given:
                parser.error(_PATH, f"tokens need {field!r}, as in key: {{env: JWT_KEY}}, algorithms: [RS256]")
    secret = read_secret(parser, given["key"], (*_PATH, "key")) if "key" in given else None
    algorithms = _algorithms(parser, given["algorithms"]) if "algorithms" in given else ()
    header = _text(parser, given, "header") or AUTHORIZATION
    audience, issuer = _text(parser, given, "audience"), _text(parser, given, "issuer")
    if secret is None or not algorithms:
        return None
    decode = _decoder(parser, secret, algorithms, audience, issuer)
    return None if decode is None else Tokens(decode, header.lower())


def _text(parser: Parser, given: Mapping[str, Any], field: str) -> str | None:
    value = given.get(field)
    if field in given and (not isinstance(value, str) or not value):
        parser.error((*_PATH, field), f"expected text; got {shown(value)}")
        return None
    return value


def _algorithms(parser: Parser, value: object) -> tuple[str, ...]:
    path = (*_PATH, "algorithms")
    words = parser.words(value, path, "an algorithm such as RS256")
    known = []
    for word in words:
        if word.lower() == "none":
            parser.error(path, "'none' means unsigned tokens, which a client can forge; write for instance RS256")
        elif parser.one_of(word, path, (*SHARED, *PUBLIC)):
            known.append(word)
    shared, public = ([word for word in known if (word in SHARED) is kind] for kind in (True, False))
    if shared and public:
        parser.error(
            path,
            f"{shared[0]} uses a secret and {public[0]} a public key: with both, a client that knows the public key "
            "could sign tokens; write algorithms of one kind",
        )
        return ()
    return tuple(known) if len(known) == len(words) else ()


def _decoder(
    parser: Parser, secret: bytes, algorithms: Sequence[str], audience: str | None, issuer: str | None
) -> Decode | None:
    try:
        import jwt  # an extra that only policies with tokens need
    except ImportError:
        parser.error(_PATH, _NEEDS_JWT)
        return None
    path = (*_PATH, "key")
    if b"PRIVATE KEY-----" in secret:
        parser.error(path, "this is a private key: give the public key, which is enough to verify tokens")
        return None
    key: Any = secret
    for name in algorithms:
        try:
            key = jwt.get_algorithm_by_name(name).prepare_key(secret)
        except NotImplementedError:  # PyJWT without cryptography
            parser.error(_PATH, _NEEDS_JWT)
            return None
        except Exception:  # PyJWT does not wrap the errors of cryptography
            takes = "a secret, not a key in PEM" if name in SHARED else "a public key in PEM"
            parser.error(path, f"this is not a key for {name}, which takes {takes}")
            return None
        weak = _weakness(name, key)
        if weak:
            parser.error(path, weak)
            return None
    # `claims` checks the times for each request, as a token in the cache is not verified again.
    options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    allowed = list(algorithms)
    return lambda token: jwt.decode(token, key, algorithms=allowed, audience=audience, issuer=issuer, options=options)


def _weakness(name: str, key: Any) -> str | None:  # noqa: ANN401 - a secret, or a key of cryptography's
    """Return why a key is too weak, or None: a short secret can be guessed from any token that it signed."""
    if name in SHARED and len(key) < SHARED[name]:
        return f"{name} needs a secret of {SHARED[name]} bytes or more; this one has {len(key)}"
    if name[:2] in ("RS", "PS") and key.key_size < SHORTEST_RSA:
        return f"{name} needs a key of {SHORTEST_RSA} bits or more; this one has {key.key_size}"
    return None
