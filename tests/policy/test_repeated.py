"""Requests that say a thing twice: refused, or counted as the policy says; lists and rules see every value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.policy import Policy
from headgate.policy.hashing import hashed
from headgate.policy.settling import release
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.edges import (
    PEER,
    Responder,
    plain_wsgi,
    responder,
    view,
    wsgi,
)

pytestmark = pytest.mark.engineless

TWO = {"x-key": ["a", "b"]}
BY_KEY = {"key": {"header": "x-key"}, "limits": "2/hour"}
SAID = "was sent more than once, with different values."


def ruled(*rules: dict[str, Any], headers: Any = TWO, more: Any = None, **known: Any) -> tuple[int, str]:
    """The status and the words of a outcome."""
    outcome = Responder({"rules": [{"name": f"r{at}", **rule} for at, rule in enumerate(rules)], **(more or {})}).ask(
        headers=headers, **known
    )
    return outcome.status, outcome.detail


@pytest.mark.parametrize(
    ("key", "known", "field"),
    [
        ({"header": "X-Key"}, {}, "header x-key"),
        ({"header": "authorization"}, {"headers": {"authorization": ["Bearer a", "Bearer b"]}}, "header authorization"),
        ({"trusted_header": "x-key"}, {"trusted": [PEER]}, "header x-key"),
        ({"query": "q"}, {"query_string": "q=1&q=2"}, "query parameter q"),
        ({"query": "q"}, {"query_string": b"q=1&%71=2"}, "query parameter q"),
        ({"cookie": "c"}, {"headers": {"cookie": "c=1; c=2"}}, "cookie c"),
        ({"cookie": "c"}, {"headers": {"cookie": ["c=1", "c=2"]}}, "cookie c"),
        (["ip", {"header": "x-key"}], {}, "header x-key"),
        ("host", {"headers": {"host": ["a.org", "b.org"]}}, "host"),
        (lambda seen: seen.header("X-Key"), {}, "header x-key"),
        (lambda seen: seen.query("q"), {"query_string": "q=1&q=2"}, "query parameter q"),
        (lambda seen: seen.cookie("c"), {"headers": {"cookie": "c=1; c=2"}}, "cookie c"),
    ],
)
def test_a_key_with_different_values_is_refused_and_the_field_is_named(key, known, field):
    """Every kind of part refuses them; a part that the app's function reads from the view is no exception."""
    assert ruled({**BY_KEY, "key": key}, **known) == (400, f"The {field} {SAID}")


@pytest.mark.parametrize(
    "rule", [{"cost": lambda seen: len(seen.header("x-key") or "")}, {"limits": lambda seen: seen.header("x-key")},
             {"exempt": lambda seen: seen.header("x-key") == "a"}, {"match": lambda seen: seen.header("x-key") == "a"}]
)  # fmt: skip
def test_costs_limits_and_conditions_of_the_app_are_refused_too(rule):
    """Their functions read from the view: a request that they cannot read is no error of the app's."""
    assert ruled({"key": "ip", "limits": "2/hour", **rule}) == (400, f"The header x-key {SAID}")


@pytest.mark.parametrize("rule", [{}, {"cost": lambda seen: len(seen.header("x-key") or "")}])
def test_a_rule_that_observes_refuses_nobody(rule, caplog):
    """A request that the rule could not count is in the log, and the other rules are asked."""
    caplog.set_level("INFO", "headgate.policy")
    dry = {"name": "dry", "act": "observe", **BY_KEY, **rule}
    asked = responder(dry, {"name": "real", "key": "ip", "limits": "1/hour"})
    assert [asked.ask(headers=TWO).status for _ in range(2)] == [200, 429]
    assert caplog.messages[0] == f"rule dry (observe) would refuse: The header x-key {SAID}"


def test_a_rule_that_observes_counts_each_value():
    """As one that refuses does."""
    asked = responder({**BY_KEY, "name": "dry", "limits": "1/hour", "act": "observe", "repeated": "each"})
    assert asked.ask(headers=TWO).status == 200
    assert [asked.left(key=hashed(each)) for each in ("a", "b", "c")] == [0, 0, 1]


def test_equal_values_are_one():
    """Values are equal also where they are written in different ways."""
    for headers in ({"x-key": ["a", " a", "a\t"]}, {"x-key": "a"}):
        assert ruled(BY_KEY, headers=headers) == (200, "")
    same: dict[str, Any] = {"key": {"header": "authorization"}, "limits": "1/hour"}
    asked = responder(same)
    forms = ["Bearer x", "bearer  x ", ["BEARER x", "Bearer x"]]
    assert [asked.ask(headers={"authorization": each}).status for each in forms] == [200, 429, 429]


BASIC = ["Basic YW5uOnB3", "basic YW5uOnB3", "Basic  YW5u!OnB3", "Basic YW5uOnB3,Basic eDp5", "Basic YW5uOnB3===="]


@pytest.mark.parametrize(
    ("declared", "query", "status"),
    [
        ("text/plain", "q=%2BAGE-", 200),
        ("text/plain; Charset=UTF-8", "q=%C3%A4", 200),
        ('text/plain; charset = "utf-8" ; x=1', "q=%C3%A4", 200),
        ("text/plain; charset=iso-8859-1", "q=a%41", 200),
        ("text/plain; charset=iso-8859-1", "q=%C3%A4", 400),
        ("text/plain; charset=iso-8859-1", "q=a&\xe4=b", 400),
        ("text/plain; charset=utf-7", "q=%2BAGE-", 400),
        ("text/plain; charset=utf-7", "%2BAHE-=a", 400),
        ("text/plain; charset=utf-8; charset=utf-7", "q=a", 400),
        ("text/plain; charset*=utf-8''utf-7", "q=a", 400),
        ("text/plain; charset=utf-8 sig", "q=a", 400),
        ('text/plain; charset="utf-8" sig', "q=a", 400),
        ("text/plain; charset", "q=a", 400),
        ("text/plain; charset=utf-7", "", 200),
    ],
)
def test_a_query_that_some_framework_reads_in_another_charset_is_refused(declared, query, status):
    """Django reads the query in the charset of the Content-Type, where one value may have many spellings."""
    headers = {"content-type": [declared]}
    assert ruled({"key": {"query": "q"}, "limits": "2/hour"}, headers=headers, query_string=query)[0] == status


@pytest.mark.parametrize("form", BASIC[:3])
def test_basic_credentials_are_counted_by_what_they_decode_to(form):
    """Whatever else stands between the letters of base64, apps pass over."""
    asked = responder({"key": {"header": "authorization"}, "limits": "1/hour"})
    assert [asked.ask(headers={"authorization": each}).status for each in (BASIC[0], form)] == [200, 429]


@pytest.mark.parametrize(("repeated", "counted"), [("first", "a"), ("last", "b")])
@pytest.mark.parametrize("where", ["policy", "rule"])
def test_the_first_or_the_last_can_be_the_one_that_counts(repeated, counted, where):
    """For a whole policy, or for a rule."""
    rule = BY_KEY if where == "policy" else {**BY_KEY, "repeated": repeated}
    asked = responder(rule, **({"repeated": repeated} if where == "policy" else {}))
    assert asked.kinds(2, headers=TWO) == ["pass", "pass"]
    assert asked.ask(headers={"x-key": counted}).status == 429
    assert asked.ask(headers={"x-key": "b" if counted == "a" else "a"}).status == 200


@pytest.mark.parametrize(("repeated", "counted"), [("first", "a"), ("last", "b")])
def test_functions_are_given_the_value_that_counts(repeated, counted):
    """In `header`, `query` and `cookie` of the view."""
    seen = []
    rule = {
        "key": lambda each: seen.append((each.header("x-key"), each.query("q"), each.cookie("c"))),
        "limits": "9/hour",
    }
    asked = responder({**rule, "repeated": repeated})
    asked.ask(headers={**TWO, "cookie": "c=a; c=b"}, query_string="q=a&q=b")
    assert seen[0] == (counted, counted, counted)


def test_each_value_can_be_counted():
    """All are charged, or none is: a request with a value whose budget is used up charges the others nothing."""
    asked = responder({**BY_KEY, "repeated": "each"})
    assert [asked.ask(headers=TWO).kind for _ in range(3)] == ["pass", "pass", "deny"]
    assert [asked.ask(headers={"x-key": each}).status for each in ("a", "b", "c")] == [429, 429, 200]
    assert asked.ask(headers={"x-key": ["d", "a"]}).status == 429
    assert asked.kinds(3, headers={"x-key": "d"}) == ["pass", "pass", "deny"]


def test_each_value_of_several_parts_is_a_key_of_its_own():
    """Every combination; what is missing follows `missing`."""
    rule = {"key": [{"header": "x-key"}, {"query": "q"}], "limits": "1/hour", "repeated": "each", "missing": "deny"}
    asked = responder(rule)
    assert asked.ask(headers=TWO, query_string="q=1&q=2").status == 200
    pairs = [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("a", "3")]
    assert [asked.ask(headers={"x-key": a}, query_string=f"q={b}").status for a, b in pairs] == [429] * 4 + [200]
    missing = asked.ask(headers=TWO)
    assert (missing.status, missing.detail) == (401, "The query parameter q is missing.")
    assert responder({**rule, "missing": "skip"}).ask(headers=TWO).kind == "pass"


def test_each_of_too_many_values_is_refused():
    """A value is a charge: a request is not to make a thousand of them."""
    asked = responder({**BY_KEY, "repeated": "each"})
    assert asked.ask(headers={"x-key": [str(each) for each in range(16)]}).status == 200
    many = asked.ask(headers={"x-key": [str(each) for each in range(17)]})
    assert (many.status, many.detail) == (400, "The key of the request has more than 16 values.")


def test_each_value_is_given_back_with_what_is_in_flight():
    """A place for each value, free again when the request is over."""
    asked = responder({**BY_KEY, "limits": "1 in flight", "repeated": "each"})
    first = asked.ask(headers=TWO)
    assert [asked.ask(headers={"x-key": each}).status for each in "ab"] == [429, 429]
    for _ in release(first.charges):
        pass
    assert [asked.ask(headers={"x-key": each}).status for each in "ab"] == [200, 200]


CONDITION = {"header": {"x-key": "a"}}
POLARITY = [
    ({"deny": CONDITION}, "deny"),
    ({"deny": {"header": {"x-key": "c"}}}, "limited"),
    ({"deny": {"not": CONDITION}}, "deny"),
    ({"deny": {"not": {"not": CONDITION}}}, "deny"),
    ({"allow": CONDITION}, "limited"),
    ({"allow": {"not": CONDITION}}, "limited"),
    ({"allow": {"not": {"header": {"x-key": "c"}}}}, "pass"),
    ({"allow": {"header": {"x-key": ["a", "b"]}}}, "pass"),
    ({"allow": {"any": [CONDITION, {"header": {"x-key": "b"}}]}}, "limited"),
    ({"allow": {"header": {"x-key": True}}}, "pass"),
    ({"rule": {"match": CONDITION}}, "limited"),
    ({"rule": {"match": {"not": CONDITION}}}, "limited"),
    ({"rule": {"match": {"header": {"x-key": "c"}}}}, "pass"),
    ({"rule": {"exempt": CONDITION}}, "limited"),
    ({"rule": {"exempt": {"header": {"x-key": ["a", "b"]}}}}, "pass"),
    ({"rule": {"exempt": {"not": {"header": {"x-key": "c"}}}}}, "pass"),
    ({"rule": {"exempt": {"not": CONDITION}}}, "limited"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), POLARITY)
@pytest.mark.parametrize("source", ["header", "query", "cookie"])
def test_lists_and_rules_look_at_every_value(given, expected, source):
    """One value is enough to deny or to match; all have to fit to allow or to exempt; `not` turns that round."""
    told = json.loads(json.dumps(given).replace('"header"', f'"{source}"'))
    rule = {"key": "everyone", "limits": "1/hour", "cost": 2, **told.pop("rule", {})}
    known = {
        "header": {"headers": TWO},
        "query": {"query_string": "x-key=a&x-key=b"},
        "cookie": {"headers": {"cookie": "x-key=a; x-key=b"}},
    }[source]
    outcome = responder(rule, **told).ask(**known)
    assert {200: "pass", 403: "deny", 429: "limited"}[outcome.status] == expected


@pytest.mark.parametrize("word", ["a, b", "a,b"])
def test_lines_of_a_header_are_denied_as_frameworks_join_them(word):
    """Some apps see the lines of a header as one; nobody joins the values of a parameter or a cookie."""
    assert responder(BY_KEY, deny={"header": {"x-key": word}}).ask(headers=TWO).status == 403
    assert responder(BY_KEY, deny={"query": {"q": word}}).ask(query_string="q=a&q=b").status == 200
    assert responder(BY_KEY, deny={"cookie": {"c": word}}).ask(headers={"cookie": "c=a; c=b"}).status == 200


def test_a_host_that_is_said_twice_is_matched_by_each():
    """Ports, letters and the dot at the end do not matter, as they do not to DNS."""
    rule = {"key": "everyone", "limits": "1/hour", "cost": 2, "match": {"host": "api.example.com"}}
    for host in ("api.example.com", "API.example.com.:8000", ["x.org", "api.example.com"], "api.example.com."):
        assert responder(rule).ask(headers={"host": host}).status == 429
    assert responder(rule).ask(headers={"host": ["x.org", "y.org"]}).status == 200
    allowed = {"allow": {"host": "api.example.com"}}
    assert responder({**rule, "match": {}}, **allowed).ask(headers={"host": ["x.org", "api.example.com"]}).status == 429
    by_host = responder({"key": "host", "limits": "1/hour"})
    assert [by_host.ask(headers={"host": each}).status for each in ("a.org:1", "A.org.:2", "b.org")] == [200, 429, 200]


def test_a_plan_that_is_said_twice_is_refused():
    """A proxy that adds its header after the client's own must not leave the choice to chance."""
    policy = {
        "plan": {"trusted_header": "x-plan"},
        "rules": [{"key": "ip", "limits": {"default": "1/hour", "pro": "9/hour"}}],
    }
    plans = {"x-plan": ["pro", "free"]}
    asked = Responder(policy).ask(headers=plans, trusted=[PEER])
    assert (asked.status, asked.detail) == (400, f"The header x-plan {SAID}")
    assert Responder({**policy, "repeated": "last"}).kinds(2, headers=plans, trusted=[PEER]) == ["pass", "deny"]
    app = Wsgi(plain_wsgi, {"rules": [{"key": "ip", "limits": "1/hour"}]}, plan=lambda seen: seen.query("plan"))
    assert wsgi(app, QUERY_STRING="plan=a&plan=b").status == 400


@pytest.mark.parametrize("key", [{"query": "q"}, {"cookie": "q"}])
def test_nothing_is_hidden_behind_others(key):
    """Everything that a server lets pass is read; a request with more is refused, not read in part."""

    def sent(count: int) -> dict[str, Any]:
        pairs = ["f=1"] * count + ["q=7"]
        return {"query_string": "&".join(pairs), "headers": {"cookie": ";".join(pairs)}}

    ((kind, _),) = key.items()
    asked = responder({"key": key, "limits": "1/hour", "missing": "skip"}, deny={kind: {"q": "8"}})
    assert [asked.ask(**sent(count)).status for count in (0, 255, 256, 10_000)] == [200, 429, 429, 429]
    word = {"query": "query parameter", "cookie": "cookie"}[kind]
    told = f"The {word} q cannot be read from more than 65536 characters."
    refused = asked.ask(**sent(20_000))
    assert (refused.status, refused.detail) == (400, told)


def test_a_policy_knows_what_to_do():
    """refuse, first, last or each; what else is a mistake."""
    assert [rule.repeated for rule in Policy({"rules": [BY_KEY], "repeated": "last"}).rules] == ["last"]
    assert [rule.repeated for rule in Policy({"rules": [{**BY_KEY, "repeated": "each"}]}).rules] == ["each"]
    assert Policy({"rules": [BY_KEY]}).rules[0].repeated == "refuse"


def test_a_view_gives_functions_one_value_in_its_plain_form():
    """Names of headers in any case; values without what servers and frameworks strip."""
    seen = view(headers={"x-key": " a ", "cookie": 'c="x%20y"'}, query_string="q=%C3%BC+1")
    assert (seen.header("X-Key"), seen.cookie("c"), seen.query("q")) == ("a", "x y", "ü 1")
    assert (seen.header("x"), seen.cookie("x"), seen.query("x")) == (None, None, None)
    assert view(headers={"cookie": ["a=1", "b=2"]}).header("Cookie") == "a=1; b=2"
