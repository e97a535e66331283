"""To whom rules apply, and what they count by."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import MemoryStore
from headgate.policy import Policy
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.outcome import Outcome
from headgate.policy.path import compile_pattern, tidy
from tests.support.edges import PEER, view

pytestmark = pytest.mark.engineless


def matches(match: Any, *request: Any, **known: Any) -> bool:
    """Whether a rule applies to a request."""
    policy = Policy({"rules": [{"match": match, "key": "ip", "limits": "1/minute"}]})
    return bool(policy.matching(view(*request, **known)))


def key_of(key: Any, *request: Any, match: Any = None, missing: str = "ip", **known: Any) -> Any:
    """What a request is counted by; the status of a refusal."""
    rule = {"match": match or {}, "key": key, "limits": "1/minute", "missing": missing}
    compiled = CompiledPolicy(Policy({"rules": [rule]}), {"": MemoryStore()}, awaited=False)
    seen = view(*request, **known)
    ((found, params),) = compiled.policy.matching(seen)
    told = compiled.keys(found, seen, params)
    return str(told.status) if isinstance(told, Outcome) else next(iter(told), None)


PATHS = [
    ("/login", "/login", True),
    ("/login", "/login/", True),
    ("/login", "//login", True),
    ("/login", "///login///", True),
    ("/login", "/Login", False),
    ("/login", "/login/x", False),
    ("/login", "/xlogin", False),
    ("/login", "/login\n", True),
    ("/login", "/login/\n", True),
    ("/login", "/login\n\n", False),
    ("/login", "/login\nx", False),
    ("/", "/\n", True),
    ("/login", "http://a.org/login", True),
    ("/login", "http://a.org/login;x?y#z", True),
    ("/login", "http:login", True),
    ("/login", "http://[/login", False),
    ("/", "http://a.org", True),
    ("/login/", "/login", True),
    ("/", "/", True),
    ("/", "", True),
    ("/", "/x", False),
    ("/api/*", "/api/x", True),
    ("/api/*", "/api/x/y", False),
    ("/api/*", "/apix", False),
    ("/api/**", "/api", True),
    ("/api/**", "/api/", True),
    ("/api/**", "/api//x", True),
    ("/api/**", "/api/x/y\n/z", True),
    ("/api/**", "/apix", False),
    ("**", "/anything/at/all", True),
    ("/**", "/", True),
    ("**/admin", "/x/y/admin", True),
    ("/**/admin", "/admin", True),
    ("/a/**/z", "/a/z", True),
    ("/a/**/z", "/a/b/c/z", True),
    ("/a/**/z", "/a/b/cz", False),
    ("/files/*.png", "/files/a.png", True),
    ("/files/*.png", "/files/a/b.png", False),
    ("/files/*.png", "/files/axpng", False),
    ("/users/{id}", "/users/7", True),
    ("/users/{id}", "/users/", False),
    ("/users/{id}", "/users/7/8", False),
    ("/users/{rest:path}", "/users/7/8", True),
    ("/a.b(c)+", "/a.b(c)+", True),
    ("/a.b(c)+", "/axb(c)+", False),
]


@pytest.mark.parametrize(("pattern", "path", "applies"), PATHS)
def test_paths(pattern, path, applies):
    """Stars, names, slashes too many; found by the first segment, and as one condition among others."""
    assert matches({"path": pattern}, "GET", path) is applies
    assert matches({"any": [{"path": pattern}]}, "GET", path) is applies
    assert matches({"not": {"path": pattern}}, "GET", path) is not applies
    assert matches({"path": ["/elsewhere/**", pattern]}, "GET", path) is applies


WORDS = st.sampled_from(["a", "b", "*", "a*", "*b", "a*b", "{one}", "a.b", "ü", "**"])
SEGMENTS = st.sampled_from(["a", "b", "ab", "axb", "a.b", "ü", "\n", "*", "{one}", ""])


@given(st.lists(WORDS, max_size=4), st.sampled_from(["", "/{rest:path}"]), st.lists(SEGMENTS, max_size=5))
def test_the_short_way_to_compare_a_path_says_what_the_long_way_says(words, rest, segments):
    """Which most patterns have: a regular expression in which nothing is tried twice."""
    try:
        pattern = compile_pattern("/" + "/".join(words) + rest)
    except ValueError:
        return
    path = tidy("/" + "/".join(segments))
    assert pattern.fit(path) == pattern._fit_slowly(path)
    assert pattern.fits(path) == (pattern.fit(path) is not None)


MATCHES: list[tuple[Any, dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"method": "GET"}, {}, True),
    ({"method": "get"}, {}, True),
    ({"method": ["POST", "PUT"]}, {}, False),
    ({"all": [{"method": "GET"}]}, {}, True),
    ({"route": "/users/{id}"}, {"route": "/users/{id}"}, True),
    ({"route": "/users/{id}"}, {}, False),
    ({"host": "api.example.com"}, {"headers": {"host": "API.example.com:8080"}}, True),
    ({"host": "api.example.com"}, {"headers": {"host": "apixexample.com"}}, False),
    ({"host": "*.example.com"}, {"headers": {"host": "a.b.example.com"}}, True),
    ({"host": "*.example.com"}, {"headers": {"host": "example.com"}}, False),
    ({"host": "*.example.com"}, {"headers": {"host": "example.com.evil.org"}}, False),
    ({"host": ["a.org", "b.org"]}, {"headers": {"host": "b.org"}}, True),
    ({"host": "[::1]"}, {"headers": {"host": "[::1]:8080"}}, True),
    ({"host": "[::1]"}, {"headers": {"host": "[::1]"}}, True),
    ({"host": "a.org"}, {"headers": {"host": "a.org:"}}, True),
    ({"host": "api.example.com"}, {"headers": {"host": "api.example.com."}}, True),
    ({"host": "api.example.com"}, {"headers": {"host": "API.Example.COM.:443"}}, True),
    ({"host": "API.example.com."}, {"headers": {"host": "api.example.com"}}, True),
    ({"host": "api.example.com"}, {"headers": {"host": "api.example.com.."}}, False),
    ({"host": "*.example.com"}, {"headers": {"host": "a.example.com.:80"}}, True),
    ({"host": "*-*.example.com"}, {"headers": {"host": "pr-7.example.com"}}, True),
    ({"host": "*-*.example.com"}, {"headers": {"host": "pr7.example.com"}}, False),
    ({"host": "a*a.org"}, {"headers": {"host": "a.org"}}, False),
    ({"host": "*"}, {"headers": {"host": "[::1]:80"}}, True),
    ({"host": "a.org"}, {}, False),
    ({"header": {"X-Version": "2"}}, {"headers": {"x-version": "2"}}, True),
    ({"header": {"x-version": ["1", "2"]}}, {"headers": {"x-version": "2"}}, True),
    ({"header": {"x-version": "2"}}, {"headers": {"x-version": "22"}}, False),
    ({"header": {"x-version": True}}, {"headers": {"x-version": ""}}, True),
    ({"header": {"x-version": True}}, {}, False),
    ({"header": {"x-version": False}}, {}, True),
    ({"header": {"x-version": ""}}, {}, False),
    ({"header": {"x-version": ""}}, {"headers": {"x-version": ""}}, True),
    ({"header": {"a": "1", "b": "2"}}, {"headers": {"a": "1"}}, False),
    ({"header": {"x-score": {"below": 30}}}, {"headers": {"x-score": "29.9"}}, True),
    ({"header": {"x-score": {"below": 30}}}, {"headers": {"x-score": "30"}}, False),
    ({"header": {"x-score": {"below": 30}}}, {"headers": {"x-score": " -5 "}}, True),
    ({"header": {"x-score": {"below": 30}}}, {}, False),
    ({"header": {"x-score": {"above": 0.5, "below": 30}}}, {"headers": {"x-score": "0.5"}}, False),
    ({"header": {"x-score": {"above": 0.5, "below": 30}}}, {"headers": {"x-score": "0.50000001"}}, True),
    *(
        ({"header": {"x-score": {"below": 30}}}, {"headers": {"x-score": text}}, False)
        for text in ("", "x", "nan", "-inf", "1e1", "+5", "0x1", "\u0661", "1_0", "-", ".5", "5.", "1,5", "9" * 400)
    ),
    ({"header": {"x-score": {"below": 30}}}, {"headers": {"x-score": ["90", "10"]}}, True),
    ({"not": {"header": {"x-score": {"below": 30}}}}, {"headers": {"x-score": ["90", "10"]}}, True),
    ({"query": {"page": {"above": 99}}}, {"query_string": "page=100"}, True),
    ({"query": {"debug": "1"}}, {"query_string": "a=b&debug=1"}, True),
    ({"query": {"debug": "1"}}, {"query_string": b"debug=0&debug=1"}, True),
    ({"query": {"debug": "ü &"}}, {"query_string": b"debug=%C3%BC+%26"}, True),
    ({"query": {"debug": True}}, {"query_string": "debug"}, True),
    ({"query": {"debug": False}}, {"query_string": "a=b"}, True),
    ({"cookie": {"beta": "yes"}}, {"headers": {"cookie": 'a=b; beta="yes"'}}, True),
    ({"cookie": {"beta": "yes"}}, {"headers": {"cookie": ["a=b", "beta=yes"]}}, True),
    ({"cookie": {"beta": True}}, {"headers": {"cookie": "alphabeta=yes"}}, False),
    ({"ip": "203.0.113.0/24"}, {}, True),
    ({"ip": ["10.0.0.0/8", "203.0.113.9"]}, {}, True),
    ({"ip": "203.0.113.0/24"}, {"peer": "::ffff:203.0.113.9"}, True),
    ({"ip": "2001:db8::/32"}, {"peer": "2001:DB8::9%eth0"}, True),
    ({"ip": "203.0.113.0/24"}, {"peer": None}, False),
    ({"ip": "0.0.0.0/0"}, {"peer": "testclient"}, False),
    ({"plan": ["free", "pro"]}, {"plan": "pro"}, True),
    ({"plan": "pro"}, {}, False),
    ({"any": [{"plan": "pro"}, {"method": "GET"}]}, {}, True),
    ({"any": [{"plan": "pro"}, {"method": "POST"}]}, {}, False),
    ({"all": [{"ip": PEER}, {"method": "GET"}]}, {}, True),
    ({"all": [{"ip": PEER}, {"method": "PUT"}]}, {}, False),
    ({"not": {"any": [{"plan": "pro"}, {"not": {"ip": PEER}}]}}, {}, True),
    ({"not": {"ip": PEER, "method": "POST"}}, {}, True),
    ({"method": "GET", "not": {"ip": PEER}}, {}, False),
]


@pytest.mark.parametrize(("match", "known", "applies"), MATCHES)
def test_conditions(match, known, applies):
    """Each predicate alone, and mixed; alone it is the same as within `all` and `not not`."""
    assert matches(match, **known) is applies
    assert matches({"not": {"not": match}}, **known) is applies


def test_a_callable_is_a_condition_and_exempt_takes_a_request_out():
    """Python policies may ask anything; what is exempt is not limited by that rule."""
    assert matches(lambda seen: seen.path == "/x", "GET", "/x")
    assert not matches(lambda seen: seen.path == "/x", "GET", "/y")
    rule = {"key": "ip", "limits": "1/minute", "exempt": {"any": [{"ip": "10.0.0.0/8"}, {"path": "/health"}]}}
    policy = Policy({"rules": [rule, {**rule, "exempt": {"plan": "pro"}}]})
    exempted = [view(peer="10.1.1.1"), view(path="/health/"), view(plan="pro"), view()]
    assert [[found.index for found, _ in policy.matching(seen)] for seen in exempted] == [[1], [1], [0], [0, 1]]


def test_rules_are_found_in_their_order_wherever_their_paths_begin():
    """The order is the file's, by first segment or not, and a rule with two fitting paths is found once."""
    paths: list[Any] = ["/a/**", None, ["/a/*", "/a/b"], "/b", "/{any}/b", ["/c", "**/b"]]
    rules = [{"key": "ip", "limits": "1/minute", "match": {"path": path} if path else {}} for path in paths]
    policy = Policy({"rules": rules})
    for _ in range(2):  # once looked for, once remembered
        assert [rule.index for rule, _ in policy.matching(view(path="/a/b"))] == [0, 1, 2, 4, 5]
        assert [rule.index for rule, _ in policy.matching(view(path="/b"))] == [1, 3, 5]


def test_a_long_path_does_not_keep_the_server():
    """A pattern of two ** is compared in a moment with the longest path that servers take."""
    start = time.perf_counter()
    assert not matches({"path": "/a/**/x/**/y"}, "GET", "/a" + "/x" * 20_000)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/login", "/" * 10_000 + "login"),
        ("/files/**/export", f"/files/{'x' * 10_000}/export"),
        ("/files/{name}/export", f"/files/{'x' * 10_000}/export"),
    ],
)
def test_a_long_path_does_not_slip_past_its_rule(pattern, path):
    """A client must not get around the limit by a long path."""
    assert matches({"path": pattern}, "GET", path)


@pytest.mark.parametrize("trusted", [["10.0.0.0/8"], ["198.51.100.1"], []])
def test_trusted_headers_are_believed_from_trusted_peers_only(trusted):
    """A plan, an ASN or a fingerprint that anybody can claim is no plan, ASN or fingerprint."""
    claimed: dict[str, Any] = {"headers": {"x-asn": "64500"}, "peer": "10.0.0.1", "trusted": trusted}
    believed = trusted == ["10.0.0.0/8"]
    assert matches({"trusted_header": {"x-asn": "64500"}}, **claimed) is believed
    assert matches({"trusted_header": {"x-asn": True}}, **claimed) is believed
    assert key_of({"trusted_header": "X-ASN"}, missing="skip", **claimed) == ("64500" if believed else None)
    policy = Policy({"plan": {"trusted_header": "X-ASN"}, "rules": [{"key": "ip", "limits": "1/minute"}]})
    assert policy.plan_of(view(**claimed)) == ("64500" if believed else None)


def test_a_plan_from_claims_is_one_that_was_verified():
    """Without verified claims there is none, and what is no word is none."""
    policy = Policy({"plan": {"claim": "plan"}, "rules": [{"key": "ip", "limits": "1/minute"}]})
    asked = [view(claims={"plan": "pro"}), view(claims={"plan": 7}), view(claims={}), view()]
    assert [policy.plan_of(seen) for seen in asked] == ["pro", None, None, None]
