"""Values that come twice, at every edge."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from headgate.policy.fast_path import FastPath
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.policy.test_repeated import BY_KEY, SAID
from tests.support import ROOT
from tests.support.edges import (
    Answer,
    asgi,
    exchange,
    plain,
    plain_wsgi,
    read_answer,
    scope,
    still,
    wsgi,
)
from tests.support.frameworks import READERS, Sent, asking
from tests.support.inside import runtime_of

pytestmark = pytest.mark.engineless


def _said_twice(accept: str = "*/*") -> Answer:
    app = Asgi(plain, {"rules": [{"key": {"header": 'x-"key"'}, "limits": "1/hour"}]})
    lines = [(b'x-"key"', b"a"), (b'x-"key"', b"b"), (b"accept", accept.encode())]
    return _ask(app, lines)


def _ask(app: Any, lines: list[tuple[bytes, bytes]]) -> Answer:
    return read_answer(asyncio.run(exchange(app, {**scope(), "headers": lines})))


def test_the_refusal_is_a_problem_that_names_the_field():
    """In every kind of body; whatever the field is called, it is JSON."""
    problem = _said_twice()
    assert (problem.status, problem.fields["content-type"]) == (400, "application/problem+json")
    detail = f'The header x-"key" {SAID}'
    assert json.loads(problem.body) == {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": detail}
    assert json.loads(_said_twice("application/json").body) == {"error": "bad-request", "detail": detail}
    assert _said_twice("text/plain").body == f"Bad Request. {detail}\n".encode()
    assert "retry-after" not in problem.fields


def test_a_fast_path_leaves_what_is_said_twice_to_the_long_way():
    """The fast_path of a path that has served a thousand requests refuses the next as the first one."""
    app = Asgi(plain, {"rules": [BY_KEY]}, store=still())
    one, two = [(b"x-key", b"a")], [(b"x-key", b"a"), (b"x-key", b"b")]
    assert [_ask(app, lines).status for lines in (one, two, one, two, one)] == [200, 400, 200, 400, 429]
    assert isinstance(runtime_of(app).fast_paths["GET"]["/"], FastPath)
    app = Asgi(plain, {"repeated": "each", "rules": [BY_KEY]}, store=still())
    assert [_ask(app, lines).status for lines in (one, two, [(b"x-key", b"b")], one, [(b"x-key", b"b")])] == [
        200, 200, 200, 429, 429,
    ]  # fmt: skip


def test_the_gallery_s_gateway_is_not_passed_with_a_second_token():
    """300 requests with one token that is genuine and one that is not: none comes through, and none is an error."""
    file = ROOT / "docs" / "gallery" / "llm.yaml"
    policy = yaml.safe_load(file.read_text(encoding="utf-8"))
    for rule in policy["rules"]:
        rule["match"] = {}
    requests = [
        Sent(((b"Authorization", b"Bearer genuine"), (b"Authorization", b"Bearer %d" % at)), b"") for at in range(300)
    ]
    assert {answer.status for answer in asking("starlette", policy, requests)} == {400}


MISSING = [
    ({"header": "x-key"}, 401, "APIKey", "The header x-key is missing."),
    ({"header": "Authorization"}, 401, "Bearer", "The header Authorization is missing."),
    ({"query": "key"}, 401, "APIKey", "The query parameter key is missing."),
    ({"cookie": "key"}, 401, "APIKey", "The cookie key is missing."),
    ({"claim": "sub"}, 401, "Bearer", "The claim sub is missing."),
    (["ip", {"header": "x-key"}], 401, "APIKey", "The header x-key is missing."),
    ("user", 403, None, "This client may not pass."),
    ({"trusted_header": "x-key"}, 403, None, "This client may not pass."),
    (lambda seen: None, 403, None, "This client may not pass."),
]


@pytest.mark.parametrize(("key", "status", "challenge", "detail"), MISSING)
def test_a_part_that_the_client_can_send_is_named_where_it_is_missing(key, status, challenge, detail):
    """401 with a challenge, as HTTP asks for; 403 where the client cannot be told what to send."""
    policy = {"rules": [{"key": key, "missing": "deny", "limits": "1/hour"}]}
    for answer in (asgi(Asgi(plain, policy)), wsgi(Wsgi(plain_wsgi, policy))):
        assert answer.status == status
        assert answer.fields.get("www-authenticate") == challenge
        assert json.loads(answer.body)["detail"] == detail


@pytest.mark.parametrize("reader", READERS)
def test_every_edge_says_what_is_missing_and_what_is_said_twice(reader):
    """With the same statuses and words, by whatever framework."""
    policy = {"rules": [{"key": {"query": "key"}, "missing": "deny", "limits": "1/hour"}]}
    missing, twice = asking(reader, policy, [Sent(), Sent((), b"key=a&key=b")])
    assert (missing.status, json.loads(missing.body)["detail"]) == (401, "The query parameter key is missing.")
    assert (twice.status, json.loads(twice.body)["detail"]) == (400, f"The query parameter key {SAID}")


def test_an_absolute_target_is_another_host_to_aiohttp():
    """aiohttp believes the target, a proxy the header: a rule of either host counts, and a key by host is refused."""
    rule = {"key": "everyone", "limits": "1/hour", "cost": 2}
    for policy, status in (
        ({"rules": [{**rule, "match": {"host": "a.org"}}]}, 429),
        ({"rules": [{**rule, "match": {"host": "localhost"}}]}, 429),
        ({"rules": [{**rule, "match": {"host": "b.org"}}]}, 200),
        ({"rules": [{"key": "host", "limits": "9/hour"}]}, 400),
    ):
        (answer,) = asking("aiohttp", policy, [Sent(target=b"http://a.org/")])
        assert answer.status == status
