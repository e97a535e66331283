"""Claims of a token that the policy's own key verifies.

A token that cannot be verified, for whatever reason, is as none at all: its claims are missing, and the rule says what
that means. Only tokens that were verified are remembered, so nobody fills the memory with inventions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headgate.caches import ClearedWhenFull
from headgate.policy.forms import WORD, Field, Fields, Form, array, named
from headgate.policy.parser import Parser
from headgate.policy.secret import read_secret
from headgate.policy.source import Path_
from headgate.policy.values import HEADER, Repeated, Unclear, kind_of_header
from headgate.policy.view import RequestView
from headgate.wording import log_of, missing, shown

SHARED: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms whose key is a secret that both sides know, and how many bytes of it RFC 7518 asks for."""
PUBLIC: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_ALGORITHMS: Final[Form] = {
    "anyOf": [make(named(kind)) for make in (dict, array) for kind in ("shared_algorithm", "public_algorithm")]
}
FIELDS: Final[Fields] = {
    "key": Field("The public key in PEM, or the secret, that verifies.", named("secret")),
    "algorithms": Field(
        ("Algorithms that a token may be signed with: of secrets (HS*) or of public keys, never of both."), _ALGORITHMS
    ),
    "header": Field("The request header that has the token; authorization, after Bearer, unless said otherwise.", WORD),
    "audience": Field(
        ("The audience (aud) that a token has to name. A token that names one is not believed without this."), WORD
    ),
    "issuer": Field("The issuer (iss) that a token has to name.", WORD),
}
SHORTEST_RSA: Final = 2048
"""Bits, by RFC 7518."""
AUTHORIZATION: Final = "authorization"
LONGEST_TOKEN: Final = 65_536
"""Characters; no server admits more in a header. A longer one is refused: the app might believe it."""
REMEMBERED: Final = 4096
"""Tokens that are not verified again."""
_PATH: Final[Path_] = ("tokens",)
_NEEDS_JWT: Final = missing("verifying tokens", "PyJWT[crypto]", "jwt")

Decode = Callable[[str], Mapping[str, Any]]
log = log_of("headgate.policy")


class Verified(NamedTuple):
    """What a verified token says, and from when until when."""

    claims: Mapping[str, Any]
    since: float
    until: float


class Tokens:
    """Reads the claims of a request's token. `decode` raises, whatever it likes, where the token is not genuine."""

    def __init__(self, decode: Decode, header: str = AUTHORIZATION, now: Callable[[], float] = time.time) -> None:
        self._decode = decode
        self._header = header
        self._kind = kind_of_header(header)
        self.repeated: Repeated = "refuse"
        """Which token counts where a request has several that differ."""
        self.now = now
        """Seconds since the epoch, as tokens count them."""
        self._known: ClearedWhenFull[bytes, Verified] = ClearedWhenFull(REMEMBERED)

    def claims(self, view: RequestView) -> Mapping[str, Any] | None:
        """What the request's token says; None where it has none that is genuine and valid now."""
        token = self._token(view.header_values(self._header))
        if not token:
            return None
        if len(token) > LONGEST_TOKEN:
            raise Unclear(f"header {self._header}", f"has a token of more than {LONGEST_TOKEN} characters")
        name = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        found = self._known.get(name)
        if found is None:
            try:
                found = self._known.keep(name, _verified(self._decode(token)))
            except Exception as reason:  # what a hostile token makes a parser raise is nobody's business but the log's
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
    """A policy's `tokens`; None where errors leave nothing to verify with."""
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
        import jwt  # an extra, and needed by no policy without tokens
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
        except Exception:  # PyJWT lets through whatever cryptography raises
            takes = "a secret, not a key in PEM" if name in SHARED else "a public key in PEM"
            parser.error(path, f"this is not a key for {name}, which takes {takes}")
            return None
        weak = _weakness(name, key)
        if weak:
            parser.error(path, weak)
            return None
    # The times are looked at whenever a token comes, not only when it is verified.
    options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    allowed = list(algorithms)
    return lambda token: jwt.decode(token, key, algorithms=allowed, audience=audience, issuer=issuer, options=options)


def _weakness(name: str, key: Any) -> str | None:  # noqa: ANN401 - a secret, or a key of cryptography's
    """Why a key is too weak: a short secret can be guessed from any token that it signed."""
    if name in SHARED and len(key) < SHARED[name]:
        return f"{name} needs a secret of {SHARED[name]} bytes or more; this one has {len(key)}"
    if name[:2] in ("RS", "PS") and key.key_size < SHORTEST_RSA:
        return f"{name} needs a key of {SHORTEST_RSA} bits or more; this one has {key.key_size}"
    return None
