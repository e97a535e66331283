"""`headgate policy check` tells of rules that count only by what a client can invent."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from headgate.cli import main
from headgate.policy import Policy
from headgate.policy.forgeable_keys import inventions
from headgate.policy.path import compile_pattern
from headgate.policy.source import read_source

pytestmark = pytest.mark.engineless

pytest.importorskip("yaml")
BY_KEY: dict[str, Any] = {"name": "api", "match": {"path": "/api/**"}, "key": {"header": "x-api-key"}}
REMEDY = "add a rule by ip for the same requests, or count by a verified value (user, claim, trusted_header)"


def told(*rules: dict[str, Any], **policy: Any) -> list[str]:
    """The names of the rules that are told of."""
    given = [{"limits": "10/minute", **rule} for rule in rules]
    source = read_source({"rules": given, **policy})
    return [each.partition(":")[0].removeprefix("rule ") for each in inventions(source, Policy(source))]


def test_check_names_the_rule_its_line_the_part_and_the_remedy(capsys, tmp_path):
    """A warning beside what is right: exit code 0."""
    made = tmp_path / "policy.yaml"
    made.write_text("rules:\n- name: api\n  key: {header: X-API-Key}\n  limits: 10/minute\n")
    assert main(["policy", "check", str(made)]) == 0
    assert capsys.readouterr() == (
        f"{made}: 1 rule, no mistakes\n"
        "warning: policy.yaml:3: rule api: a client can invent header X-API-Key, and has a new budget with each new "
        f"value; {REMEDY}\n",
        "",
    )


def test_every_part_that_can_be_invented_is_named():
    """One sentence for a rule, whatever its key is made of."""
    key = ["ip", {"header": "x-key"}, "method", {"cookie": "visit"}]
    source = read_source({"rules": [{"key": key, "limits": "10/minute"}]})
    assert list(inventions(source, Policy(source))) == [
        "rule rule-1: a client can invent header x-key and cookie visit, and has a new budget with each new value; "
        + REMEDY
    ]


def test_an_app_that_starts_is_not_told():
    """It is advice for the author of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Policy({"rules": [{**BY_KEY, "limits": "10/minute"}]})


@pytest.mark.parametrize(
    ("key", "invented"),
    [
        ({"header": "x-api-key"}, True),
        ({"cookie": "session"}, True),
        ({"query": "api_key"}, True),
        ("host", True),
        (["ip", {"header": "x-api-key"}], True),  # each invented value is a new budget of the same address
        ([{"trusted_header": "x-customer"}, {"query": "page"}], True),
        ("ip", False),
        ("user", False),
        ("plan", False),
        ("route", False),
        ("everyone", False),
        ("path", False),
        ({"trusted_header": "x-customer"}, False),
        ({"claim": "sub"}, False),  # there are no claims but verified ones
        ({"constant": "all"}, False),
        (lambda request: request.user, False),
    ],
)
def test_what_can_be_invented(key, invented):
    """Whatever a client writes into a request, and nobody has looked at."""
    assert told({"name": "a", "key": key}) == ["a"] * invented


@pytest.mark.parametrize(
    ("match", "key", "invented"),
    [
        ({"header": {"X-Key": ["k1", "k2"]}}, {"header": "x-key"}, False),
        ({"query": {"tenant": "red"}}, {"query": "tenant"}, False),
        ({"header": {"x-key": True}}, {"header": "x-key"}, True),
        ({"header": {"x-other": "k1"}}, {"header": "x-key"}, True),
        ({"host": ["a.org", "b.org"]}, "host", False),
        ({"host": "*.a.org"}, "host", True),
    ],
)
def test_values_that_the_rule_itself_names_are_not_invented(match, key, invented):
    """With any other value the rule does not apply."""
    assert told({"name": "a", "match": match, "key": key}) == ["a"] * invented


@pytest.mark.parametrize(
    "beside",
    [
        {"key": "ip"},
        {"key": "everyone"},
        {"key": ["route", "ip"]},
        {"key": "user"},  # by the address of whoever is nobody
        {"key": {"claim": "sub"}, "missing": "deny"},
        {"key": {"trusted_header": "x-customer"}},
        {"key": "ip", "match": {"path": "/**"}},
        {"key": "ip", "match": {"path": ["/", "/api/**"]}},
        {"key": "ip", "act": "delay"},
        {"key": "ip", "missing": "skip"},
        {"key": "ip", "limits": {"default": "10/minute", "pro": ""}},
        {"key": "ip", "count": {"when": {"status": [401, 403]}}},  # the app refuses what was invented
    ],
)
def test_a_rule_beside_it_that_no_client_can_escape_is_enough(beside):
    """It applies wherever the other does, and counts by nothing that a client writes."""
    assert told(BY_KEY, beside) == []


@pytest.mark.parametrize(
    "beside",
    [
        {"key": ["ip", {"query": "page"}]},
        {"key": "path"},
        {"key": "user", "missing": "skip"},  # nobody has to log in
        {"key": "ip", "act": "observe"},
        {"key": "ip", "act": "shadow"},
        {"key": "ip", "match": {"path": "/api"}},
        {"key": "ip", "match": {"path": "/api/*"}},
        {"key": "ip", "match": {"method": "POST"}},
        {"key": "ip", "match": {"header": {"x-api-key": False}}},
        {"key": "ip", "exempt": {"header": {"x-internal": True}}},
        {"key": "ip", "cost": 0},
        {"key": "ip", "limits": "3 in flight"},
        {"key": "ip", "limits": {"default": "", "pro": "10/minute"}},
        {"key": "ip", "count": {"when": {"status": "5xx"}}},
    ],
)
def test_a_rule_beside_it_that_a_client_can_escape_is_not(beside):
    """It is narrower, refuses nobody, counts nothing, or can be escaped by the same means."""
    assert "api" in told(BY_KEY, beside)


def test_the_address_in_place_of_a_missing_key_is_not_enough():
    """The client simply sends a key."""
    assert told({**BY_KEY, "missing": "ip"}) == told({**BY_KEY, "missing": "deny"}) == ["api"]


def test_conditions_that_both_rules_have_do_not_count_as_narrower():
    """Methods and common exemptions do not count either; a path that is written out has only one budget by path."""
    match = {"path": "/api/items", "method": "GET", "host": "a.org", "query": {"v": "2"}}
    narrow = {**BY_KEY, "match": match, "exempt": {"ip": "10.0.0.1"}}
    for beside in (
        {"method": ["GET", "POST"], "path": "/api/*", "host": "a.org"},
        {"method": ["HEAD", "GET"], "query": {"v": "2"}},
    ):
        assert told(narrow, {"key": ["ip", "path"], "match": beside, "exempt": {"ip": "10.0.0.1"}}) == []
        assert told(narrow, {"key": "ip", "match": beside, "exempt": {"ip": "10.0.0.0/8"}}) == ["api"]
    assert told(narrow, {"key": "ip", "match": {"method": "HEAD"}}) == ["api"]
    assert told(narrow, {"key": "ip", "match": {"host": "b.org"}}) == ["api"]


def test_messages_of_a_websocket_are_counted_only_where_they_are_named():
    """A rule without a method does not count them."""
    messages = {"name": "chat", "match": {"method": "MESSAGE"}, "key": {"cookie": "session"}}
    assert told(messages, {"key": "ip"}) == ["chat"]
    assert told(messages, {"key": "ip", "match": {"method": ["MESSAGE", "GET"]}}) == []


def test_what_is_in_flight_is_bounded_by_a_rate_or_by_another_in_flight():
    """A rate is bounded only by a rate."""
    streams = {**BY_KEY, "limits": "4 in flight"}
    assert told(streams, {"key": "ip"}) == told(streams, {"key": "ip", "limits": "9 in flight"}) == []
    assert told(streams) == ["api"]


WIDER = [
    ("/**", "/a/{id}/**"), ("**", "/"), ("/a/**", "/a"), ("/a/**", "/a/*/b/**"), ("/a/{x}", "/a/*.png"),
    ("/*.png", "/a*.png"), ("/{rest:path}", "/a/{more:path}"), ("/a/**", "/a/{rest:path}"), ("/**/x", "/a/**/b/x"),
    ("/**/b/**", "/a/**/b/c"), ("/a//b/", "/a/b"), ("/**", "/**/x/**"),
]  # fmt: skip
NARROWER = [
    ("/a", "/a/**"), ("/a/*", "/a/**"), ("/a/*/**", "/a/**"), ("/a/{rest:path}", "/a/**"), ("/a", "/{id}"),
    ("/a*", "/*"), ("/a*b*c", "/a*c"), ("/*/**/x", "/**/x"), ("/a/*/*/*", "/a/**"), ("/x/**/y", "/x/**"),
    ("/a/*", "/a/{rest:path}"), ("/a", "/a*"),
]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow"), WIDER)
def test_a_pattern_that_fits_whatever_another_fits(wide, narrow):
    """Written in any way."""
    assert compile_pattern(wide).fits_all_of(compile_pattern(narrow))
    assert compile_pattern(wide).fits_all_of(compile_pattern(wide))


@pytest.mark.parametrize(("narrow", "wide"), NARROWER)
def test_a_pattern_that_does_not_fit_all_of_another(narrow, wide):
    """One path that it does not fit is enough."""
    assert not compile_pattern(narrow).fits_all_of(compile_pattern(wide))
