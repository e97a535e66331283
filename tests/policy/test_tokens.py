"""Claims of tokens that the policy's own key verifies, and of those that it does not."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import MemoryStore
from headgate.errors import InvalidPolicy
from headgate.policy import Policy
from headgate.policy.token import LONGEST_TOKEN, REMEMBERED, Tokens
from headgate.policy.values import Unclear
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.edges import LATER, Responder, asgi, plain, plain_wsgi, view, wsgi

jwt = pytest.importorskip("jwt")
pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: E402

pytestmark = pytest.mark.engineless

SECRET = "0123456789abcdef" * 4
HS256: dict[str, Any] = {"key": {"env": "TOKEN_SECRET"}, "algorithms": ["HS256"]}
BY_SUB: dict[str, Any] = {"key": {"claim": "sub"}, "missing": "deny", "limits": "2/minute"}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(autouse=True)
def _secret(monkeypatch):
    monkeypatch.setenv("TOKEN_SECRET", SECRET)


def signed(claims: Any = None, key: Any = SECRET, algorithm: str = "HS256", **head: Any) -> str:
    """A token."""
    told: str = jwt.encode({"sub": "ann"} if claims is None else claims, key, algorithm, headers=head or None)
    return told


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {token}"}}


def pem(key: Any) -> bytes:
    """A public key as it stands in a file."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    written: bytes = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    return written


def tokens(**fields: Any) -> Tokens:
    """What a policy verifies tokens with; the time stands still."""
    made = Policy({"tokens": {**HS256, **fields}, "rules": [BY_SUB]}).tokens
    assert made is not None
    made.now = lambda: LATER
    return made


def claims(token: str, **fields: Any) -> Any:
    """What a token is believed."""
    return tokens(**fields).claims(view(**bearer(token)))


def mistakes(**fields: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as raised:
        Policy({"tokens": {**HS256, **fields}, "rules": [BY_SUB]})
    return list(raised.value.mistakes)


def counting(policy: Policy) -> list[str]:
    """The tokens that are verified from now on."""
    assert policy.tokens is not None
    verified: list[str] = []
    decode = policy.tokens.decode

    def count(token: str) -> Any:
        verified.append(token)
        return decode(token)

    policy.tokens.decode = count
    return verified


def test_a_claim_of_a_verified_token_is_counted_by():
    """Each subject has a budget; a request without a token, or with an invented one, has none."""
    asked = Responder({"tokens": HS256, "rules": [BY_SUB]})
    assert asked.kinds(3, **bearer(signed())) == ["pass", "pass", "deny"]
    assert asked.kinds(1, **bearer(signed({"sub": "ann", "jti": "another token of hers"}))) == ["deny"]
    assert asked.kinds(1, **bearer(signed({"sub": "bob"}))) == ["pass"]
    invented = asked.ask(**bearer(signed({"sub": "bob"}, key="x" * 64)))
    assert (invented.status, asked.ask().status) == (401, 401)


def test_a_plan_comes_from_a_verified_token():
    """A token that is not verified gives no plan."""
    rule = {"key": "ip", "limits": {"default": "1/minute", "pro": "3/minute"}}
    asked = Responder({"tokens": HS256, "plan": {"claim": "plan"}, "rules": [rule]})
    assert asked.kinds(4, **bearer(signed({"plan": "pro"}))) == ["pass", "pass", "pass", "deny"]
    assert asked.kinds(2, peer="10.0.0.1", **bearer(signed({"plan": "pro"}, key="x" * 64))) == ["pass", "deny"]


def is_ann(seen: Any) -> bool:
    return seen.claims is not None and seen.claims["sub"] == "ann"


FUNCTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "match": ({}, {"match": is_ann}, ["deny", "pass"]),
    "exempt": ({}, {"exempt": is_ann}, ["pass", "deny"]),
    "key": ({}, {"key": lambda seen: seen.claims and "*", "missing": "deny", "limits": "9/minute"}, ["pass", "deny"]),
    "limits": ({}, {"limits": lambda seen: "1/minute" if is_ann(seen) else "9/minute"}, ["deny", "pass"]),
    "cost": ({}, {"cost": lambda seen: 9 if is_ann(seen) else 0}, ["deny", "pass"]),
    "allow": ({"allow": is_ann}, {}, ["pass", "deny"]),
    "deny": ({"deny": is_ann}, {"limits": "9/minute"}, ["deny", "pass"]),
    "any": ({}, {"match": {"any": [is_ann]}}, ["deny", "pass"]),
}


@pytest.mark.parametrize("place", FUNCTIONS)
def test_functions_of_the_request_see_the_claims(place):
    """Wherever a policy may have one; and none where the token is not genuine."""
    head, fields, kinds = FUNCTIONS[place]
    rule = {"key": "everyone", "limits": "1/minute", **fields}
    given = [bearer(signed()), bearer(signed(key="x" * 64))]
    told = []
    for each in given:
        asked = Responder({"tokens": HS256, "rules": [rule], **head})
        told.append(asked.kinds(2, **each)[-1])
    assert told == kinds


def test_claims_that_the_app_gives_go_before_the_tokens():
    """Where it gives none, the token has its say."""
    verified = counting(policy := Policy({"tokens": HS256, "rules": [BY_SUB]}))
    ((rule, params),) = policy.matching(view())
    given = [{"sub": "app"}, {}, None]
    told = [rule.key[0](view(claims=each, **bearer(signed())), params) for each in given]
    assert (told, len(verified)) == (["app", None, "ann"], 1)


def test_nothing_is_verified_that_nobody_asks_for():
    """A rule that counts by address does not look at tokens."""
    rules = [{"match": {"path": "/a"}, "key": "ip", "limits": "9/minute"}, {"match": {"path": "/b"}, **BY_SUB}]
    asked = Responder({"tokens": HS256, "rules": rules})
    verified = counting(asked.compiled.policy)
    asked.ask(path="/a", **bearer(signed()))
    assert verified == []
    asked.ask(path="/b", **bearer(signed()))
    assert verified == [signed()]


def test_a_token_is_verified_once_for_a_request_however_often_it_is_asked_for():
    """A token that is not genuine is verified once too, and is not remembered."""
    rule = {**BY_SUB, "key": [{"claim": "sub"}, {"claim": "org"}, is_ann], "missing": "ip"}
    asked = Responder({"tokens": HS256, "plan": {"claim": "plan"}, "rules": [rule, {**rule, "name": "b"}]})
    verified = counting(asked.compiled.policy)
    bad = signed(key="x" * 64)
    asked.kinds(2, **bearer(bad))
    assert verified == [bad, bad]


def test_a_hot_token_costs_no_second_verification():
    """It is remembered under its hash, so that nothing keeps the token itself."""
    made = tokens()
    verified: list[str] = []
    made.decode = lambda token: (verified.append(token), {"sub": token})[1]  # type: ignore[func-returns-value]
    assert [made.claims(view(**bearer(f"t{at % 3}"))) for at in range(300)] == [
        {"sub": f"t{at % 3}"} for at in range(300)
    ]
    assert verified == ["t0", "t1", "t2"]
    assert {len(name) for name in made.known} == {32} and b"t0" not in b"".join(made.known)


def test_few_tokens_are_remembered_and_none_that_are_not_genuine():
    """A client that sends many tokens gains nothing: forged ones are not kept, and few genuine ones are."""
    made = tokens()
    for at in range(3):
        assert made.claims(view(**bearer(signed(key="x" * 64, claims={"n": at})))) is None
    assert made.known == {}
    made.decode = lambda token: {"sub": token}
    for at in range(REMEMBERED + 5):
        made.claims(view(**bearer(f"t{at}")))
        assert len(made.known) <= REMEMBERED
    assert made.claims(view(**bearer("t0"))) == {"sub": "t0"}


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        ({"exp": LATER + 1}, True),
        ({"exp": LATER}, False),
        ({"exp": LATER - 1}, False),
        ({"nbf": LATER}, True),
        ({"nbf": LATER + 0.001}, False),
        ({"nbf": LATER - 5, "exp": LATER + 5}, True),
        ({"iat": LATER + 500}, True),
        ({}, True),
        ({"exp": str(int(LATER) + 500)}, False),
        ({"exp": None}, False),
        ({"exp": True}, False),
        ({"exp": [LATER]}, False),
        ({"exp": float("nan")}, False),
        ({"nbf": "soon"}, False),
        ({"nbf": True}, False),
    ],
)
def test_a_token_is_valid_from_nbf_until_exp(given, valid):
    """To the instant; a time that is no number is no time. When it was issued does not matter."""
    assert (claims(signed({"sub": "ann", **given})) is not None) is valid


def test_a_remembered_token_begins_and_ends_by_the_clock():
    """A token that was verified once is not valid for ever."""
    made = tokens()
    seen = []
    for now in (LATER - 1, LATER, LATER + 9.999, LATER + 10, LATER):
        made.now = lambda now=now: now  # type: ignore[misc]
        seen.append(made.claims(view(**bearer(signed({"nbf": LATER, "exp": LATER + 10})))) is not None)
    assert seen == [False, True, True, False, True]
    assert len(made.known) == 1


def test_the_clock_is_the_worlds():
    """Unless a test gives another."""
    made = Policy({"tokens": HS256, "rules": [BY_SUB]}).tokens
    assert made is not None
    ended, going_on = signed({"sub": "ann", "exp": 1_000_000_000}), signed({"sub": "ann", "exp": 99_999_999_999})
    assert made.claims(view(**bearer(ended))) is None
    assert made.claims(view(**bearer(going_on))) == {"sub": "ann", "exp": 99_999_999_999}


def unsigned(head: Any, payload: Any = b'{"sub":"ann"}') -> str:
    """A token that nobody signed."""
    raw = [head if isinstance(head, bytes) else json.dumps(head).encode(), payload, b"x" * 32]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in raw)


NOT_BELIEVED: dict[str, Callable[[], str]] = {
    "another key": lambda: signed(key="x" * 64),
    "another algorithm": lambda: signed(algorithm="HS384"),
    "no signature": lambda: signed(key=None, algorithm="none"),
    "a signature cut off": lambda: signed().rpartition(".")[0] + ".",
    "a payload exchanged": lambda: ".".join(
        [signed().split(".")[0], signed({"sub": "bob"}).split(".")[1], signed().split(".")[2]]
    ),
    "an audience that nobody asked for": lambda: signed({"sub": "ann", "aud": "elsewhere"}),
    "a payload that is a list": lambda: jwt.api_jws.encode(b"[1]", SECRET, "HS256"),
    "a payload nested deeply": lambda: jwt.api_jws.encode(b'{"a":' + b"[" * 4000 + b"]" * 4000 + b"}", SECRET, "HS256"),
    "a head nested deeply": lambda: unsigned(b'{"alg":' + b"[" * 2500 + b"]" * 2500 + b"}"),
    "a head that is a list": lambda: unsigned([]),
    "an algorithm that is a list": lambda: unsigned({"alg": ["HS256"]}),
    "an algorithm that is a table": lambda: unsigned({"alg": {}}),
    "a number of many digits": lambda: unsigned(b'{"alg":' + b"1" * 5000 + b"}"),
    "a head that is no text": lambda: unsigned(b"\xff\xfe"),
    "garbage": lambda: "garbage",
    "dots": lambda: "..",
    "no letters": lambda: "é\udcff.\x00.\n",
    "nothing": lambda: "",
    "spaces": lambda: "   ",
}


@pytest.mark.parametrize("token", NOT_BELIEVED.values(), ids=NOT_BELIEVED.keys())
def test_a_token_that_is_not_genuine_is_as_none_at_all(token):
    """The token is never an error: its claims are missing, and the rule says what that means."""
    asked = Responder({"tokens": HS256, "rules": [BY_SUB]})
    assert asked.ask(**bearer(token())).status == 401


def test_a_request_with_a_token_of_more_than_64_kib_is_refused():
    """However genuine: an app might believe what was not looked at here."""
    made = tokens()
    long = signed({"sub": "ann", "x": "x" * (LONGEST_TOKEN * 3 // 4 - 70)})
    fits = signed({"sub": "ann", "x": "x" * (LONGEST_TOKEN * 3 // 4 - 160)})
    assert LONGEST_TOKEN - 200 < len(fits) <= LONGEST_TOKEN < len(long)
    assert made.claims(view(**bearer(fits))) is not None
    with pytest.raises(Unclear, match="The header authorization has a token of more than 65536 characters."):
        made.claims(view(**bearer(long)))


def test_a_public_key_is_no_secret():
    """A token that was signed with the public key, as if it were the secret of HS256, is not valid."""
    policy = {"tokens": {"key": {"env": "TOKEN_SECRET"}, "algorithms": "RS256"}, "rules": [BY_SUB]}
    public = pem(RSA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_SECRET", public.decode())
        asked = Responder(policy)
    forged = jwt.api_jws.PyJWS()
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(b'{"sub":"ann"}').rstrip(b"=")
    mac = forged.get_algorithm_by_name("HS256").sign(head + b"." + body, public)
    token = b".".join([head, body, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()
    assert asked.ask(**bearer(token)).status == 401
    assert asked.ask(**bearer(signed(key=RSA, algorithm="RS256"))).kind == "pass"


@pytest.mark.parametrize(
    ("fields", "given", "believed"),
    [
        ({"audience": "api"}, {"aud": "api"}, True),
        ({"audience": "api"}, {"aud": ["x", "api"]}, True),
        ({"audience": "api"}, {"aud": "x"}, False),
        ({"audience": "api"}, {}, False),
        ({"issuer": "https://id"}, {"iss": "https://id"}, True),
        ({"issuer": "https://id"}, {"iss": "https://id/"}, False),
        ({"issuer": "https://id"}, {}, False),
        ({}, {"iss": "anybody"}, True),
    ],
)
def test_audience_and_issuer(fields, given, believed):
    """A token for another audience, or by another issuer, is genuine and not for us."""
    assert (claims(signed(given), **fields) is not None) is believed


@pytest.mark.parametrize(
    ("header", "sent", "believed"),
    [
        ({}, {"authorization": "bearer {}"}, True),
        ({}, {"authorization": "BEARER   {} "}, True),
        ({}, {"authorization": "{}"}, False),
        ({}, {"authorization": "Basic {}"}, False),
        ({}, {"authorization": "Bearer{}"}, False),
        ({}, {"authorization": ["Bearer {}", "bearer  {}"]}, True),
        ({}, {"authorization": "Bearer\t{}"}, True),
        ({}, {"authorization": ""}, False),
        ({}, {"authorization": "Bearer"}, False),
        ({}, {"x-token": "{}"}, False),
        ({"header": "AUTHORIZATION"}, {"authorization": "Bearer {}"}, True),
        ({"header": "X-Token"}, {"x-token": "{}"}, True),
        ({"header": "X-Token"}, {"x-token": "Bearer {}"}, False),
        ({"header": "X-Token"}, {"authorization": "Bearer {}"}, False),
    ],
)
def test_where_the_token_is(header, sent, believed):
    """After Bearer in Authorization, or the whole of another header."""
    lines = {
        name: [each.format(signed()) for each in value] if isinstance(value, list) else value.format(signed())
        for name, value in sent.items()
    }
    assert (tokens(**header).claims(view(headers=lines)) is not None) is believed


def test_claims_cannot_be_changed_for_the_next_request():
    """They are remembered, so a function that writes to them would write for others."""
    asked = Responder({"tokens": HS256, "rules": [{**BY_SUB, "key": lambda seen: seen.claims.update(sub="bob")}]})
    with pytest.raises(AttributeError):
        asked.ask(**bearer(signed()))


def test_the_log_says_why_and_nothing_of_the_token(caplog):
    """A line at level debug has the reason for a rejection, and no part of the token."""
    with caplog.at_level(logging.DEBUG, "headgate.policy"):
        assert claims(signed(key="x" * 64)) is None
    assert caplog.messages == ["a token was rejected: Signature verification failed"]


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_no_header_is_ever_an_error(text):
    """Whatever a client sends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_SECRET", SECRET)
        for header in ("authorization", "x-token"):
            made = tokens(header=header)
            assert made.claims(view(headers={header: f"Bearer {text}"})) is None
            assert made.claims(view(headers={header: text})) is None


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
@pytest.mark.parametrize("head", [{}, {"plan": {"claim": "plan"}}])
def test_both_edges_count_by_the_token(edge, head):
    """Whichever way a request takes through them; the app's own claims go first."""

    def statuses(*given: str, **more: Any) -> list[int]:
        policy = {"tokens": HS256, "rules": [BY_SUB], **head}
        app: Any = Asgi(plain, policy, store=MemoryStore(), **more) if edge == "asgi" else None
        app = app or Wsgi(plain_wsgi, policy, store=MemoryStore(), **more)
        ask: Any = asgi if edge == "asgi" else wsgi
        return [ask(app, "GET", "/", {"authorization": f"Bearer {token}"}).status for token in given]

    ann, bob = signed(), signed({"sub": "bob"})
    assert statuses(ann, ann, ann, bob, "invented") == [200, 200, 429, 200, 401]
    assert statuses(ann, bob, ann, claims=lambda request: {"sub": "app"}) == [200, 200, 429]
    assert statuses(ann, bob, ann, ann, claims=lambda request: None) == [200, 200, 200, 429]
