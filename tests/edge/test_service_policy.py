"""What a service does with rules that need a response, or the end of a request: it names them, and never guesses."""

from __future__ import annotations

import pytest

from headgate.edge.service_policy import applied
from headgate.policy import Policy

pytestmark = pytest.mark.engineless


def notes_of(**fields):
    found = applied(Policy({"rules": [{"name": "one", "key": "ip", "limits": "5/minute", **fields}]}))
    return [rule.name for rule in found.policy.rules], found.notes


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"count": {"when": {"status": 401}}}, "count: {when: {status: ...}} needs the response"),
        ({"cost": {"after": {"header": "x-cost"}}}, "cost: {after: ...} needs the response"),
        ({"limits": "5 in flight"}, "a limit in flight needs the end of the request"),
        ({"match": {"method": "WEBSOCKET"}}, "a proxy asks about a websocket as about any GET"),
        ({"match": {"method": "MESSAGE"}}, "and never about its messages"),
    ],
)
def test_a_rule_that_needs_more_than_the_request_is_left_out_and_named(fields, told):
    """The note says what the rule needs, that it does nothing here, and what to write instead."""
    rules, (note,) = notes_of(**fields)
    assert rules == []
    assert note.startswith("rule one: ") and told in note
    assert "does nothing here: " in note and "the app's own middleware" in note


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"act": "delay"}, "The proxy must wait longer for it than the rule holds a request"),
        ({"act": "shadow"}, "A request over the limit is refused with 429 here"),
        ({"act": "mark"}, "/v1/check tells the rule in its marks"),
        ({"key": "user"}, "only an app knows the user"),
        ({"key": ["route", "ip"]}, "only an app knows the route"),
    ],
)
def test_a_rule_that_acts_in_another_way_is_applied_and_named(fields, told):
    """The note says the difference."""
    rules, (note,) = notes_of(**fields)
    assert rules == ["one"] and told in note


def test_the_rates_beside_a_limit_in_flight_stay():
    """Only the limit in flight is left out, in each plan."""
    limits = {"default": "5/minute; 2 in flight", "pro": "9/minute"}
    found = applied(Policy({"rules": [{"name": "one", "key": "ip", "limits": limits}]}))
    (rule,) = found.policy.rules
    assert {plan: [limit.amount for limit in each] for plan, each in (rule.plans or {}).items()} == {
        "default": [5],
        "pro": [9],
    }
    assert "That limit does nothing here" in found.notes[0]


def test_load_shedding_is_for_apps():
    """The section is named, and nothing of it is left."""
    found = applied(Policy({"rules": [], "shed": {"limit": 5, "fleet": {"limit": "9 in flight"}}}))
    assert found.policy.every_rule == () and found.policy.shed is None
    assert found.notes[0].startswith("shed: load is shed by how requests end")


def test_a_plain_policy_has_no_notes():
    """Rules that need the request alone, those that only observe included, are applied as they are."""
    assert notes_of() == (["one"], ())
    assert notes_of(count={"when": {"path": "/login"}}) == (["one"], ())
    assert notes_of(act="observe", match={"method": ["GET", "WEBSOCKET"]}) == (["one"], ())
