"""Costs that are known late, and functions that give what is no cost or no limit."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from headgate import Limit
from headgate.errors import InvalidPolicy
from headgate.limit import LimitWarning
from headgate.policy import Policy
from tests.support.edges import responder, view

pytestmark = pytest.mark.engineless

LATE = {"default": 3, "after": {"header": "x-cost"}}


def warned(**fields: Any) -> list[str]:
    """What a rule is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Policy({"rules": [{"name": "api", "key": "ip", **fields}]})
    assert {each.category for each in caught} <= {LimitWarning}
    return [str(each.message) for each in caught]


def told(limits: str) -> list[str]:
    return [
        f"rule api: a cost that rises after the response is charged to {limits} only as far as there is room; "
        "use a token bucket"
    ]


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window", "sliding-window/60", "sliding-log"])
def test_a_limit_that_cannot_owe_is_warned_of_where_responses_can_cost_more(algorithm):
    """A header can tell any cost, and a status one that is above what was charged."""
    words = f"90/minute by {algorithm}"
    assert warned(limits=words, cost=LATE) == told(f"{words} as api")
    assert warned(limits=words, cost={"after": {"status": {"5xx": 2}}}) == told(f"{words} as api")
    assert warned(limits=words, cost={"GET": 2, "default": 5, "after": {"status": {"5xx": 3}}}) == told(
        f"{words} as api"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": "90/minute", "cost": LATE},
        {"limits": "90/minute by gcra", "cost": LATE},
        {"limits": "90/minute by leaky-bucket", "cost": LATE},
        {"limits": "90/minute by sliding-log block 10m", "cost": LATE},
        {"limits": "90/minute by sliding-log", "for": "10m", "cost": LATE},
        {"limits": "90/minute by sliding-log", "cost": {"after": {"status": {"5xx": 1}}}},
        {"limits": "90/minute by sliding-log", "cost": {"GET": 2, "default": 5, "after": {"status": {"5xx": 2}}}},
        {"limits": "90/minute by sliding-log", "cost": {"POST": 9}},
        {"limits": "90/minute by sliding-log", "count": {"when": {"status": 401}}},
        {"limits": lambda seen: "90/minute by sliding-log", "cost": LATE},
    ],
)
def test_nothing_is_said_where_nothing_is_lost(fields):
    """A bucket owes, a limit that blocks blocks, and what a response only makes cheaper is given back."""
    assert warned(**fields) == []


def test_every_limit_that_cannot_owe_is_named_once():
    """Of all plans, in their order; those that can are not."""
    plans = {"default": "90/hour by sliding-log; 99/day", "pro": "90/hour by sliding-log; 80/day by fixed-window"}
    assert warned(limits=plans, cost=LATE) == told("90/hour by sliding-log as api.1, 80/day by fixed-window as api.2")


def test_what_is_warned_of_is_true():
    """A bucket has its debt paid; a log forgets what was more than it had room for."""
    with pytest.warns(LimitWarning):
        logged = responder({"limits": "10/minute by sliding-log", "cost": LATE})
    owing = responder({"limits": "10/minute", "cost": LATE})
    for each in (logged, owing):
        each.answer(each.ask(), x_cost="30")
        assert each.ask().kind == "deny"
        each.clock.advance(61)
    assert [each.ask().kind for each in (logged, owing)] == ["pass", "deny"]


def test_a_warning_says_where(tmp_path):
    """With the file and the line, as a mistake does."""
    file = tmp_path / "policy.json"
    file.write_text(
        '{"rules": [{"key": "ip",\n"cost": {"after": {"header": "x"}},\n"limits": "90/minute by sliding-log"}]}'
    )
    with pytest.warns(LimitWarning, match=r"^policy\.json:3: rule rule-1: a cost that rises after the response"):
        Policy.load(file)


def test_a_policy_with_mistakes_is_not_warned_of():
    """The mistakes first."""
    with pytest.raises(InvalidPolicy), warnings.catch_warnings():
        warnings.simplefilter("error")
        Policy({"rules": [{"key": "ipp", "limits": "90/minute by sliding-log", "cost": LATE}]})


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (7, "a limit must be a Limit or a string such as '10/minute'; got 7"),
        ({"pro": "1/minute"}, "a limit must be a Limit or a string such as '10/minute'; got {'pro': '1/minute'}"),
        (["1/minute", None], "a limit must be a Limit or a string such as '10/minute'; got None"),
        (b"1/minute", "a limit must be a Limit or a string such as '10/minute'; got 49"),
        ("0/minute burst 3", "burst 3: an amount of 0 lets no request pass, so it has no burst; leave it out"),
    ],
)
def test_a_function_that_gives_no_limit_is_named_by_its_rule(gives, said):
    """Among twenty rules, whose it is has to be told."""
    asked = responder({"name": "api", "limits": lambda seen: gives})
    with pytest.raises(InvalidPolicy) as raised:
        asked.ask()
    assert raised.value.mistakes == (f"rule api: the function given as limits: {said}",)


@pytest.mark.parametrize("gives", [None, -1, 1.5, True, "7", 2**53 + 1])
def test_a_function_that_gives_no_cost_is_named_by_its_rule(gives):
    """As for limits."""
    asked = responder({"name": "api", "cost": lambda seen: gives})
    with pytest.raises(InvalidPolicy) as raised:
        asked.ask()
    said = f"rule api: the function given as cost: a cost must be a whole number from 0 to 2**53; got {gives!r}"
    assert raised.value.mistakes == (said,)


def test_functions_that_give_limits_and_costs():
    """A right value is used as it is; None is no limit."""
    (rule,) = Policy(
        {"rules": [{"key": "ip", "limits": lambda seen: {"a": "5/minute"}.get(seen.user), "cost": lambda seen: 3}]}
    ).rules
    assert rule.limits_for(view(user="a")) == (Limit(5, "minute", name="rule-1"),)
    assert (rule.limits_for(view()), rule.cost.before(view())) == ((), 3)


EXPORTS = [{"match": {"path": "/export/**"}, "cost": 25}, {"match": {"method": "POST"}, "cost": 5}, {"cost": 2}]


@pytest.mark.parametrize(
    ("costs", "method", "path", "cost"),
    [
        (EXPORTS, "POST", "/export/all", 25),
        (EXPORTS, "POST", "/items", 5),
        (EXPORTS, "GET", "/items", 2),
        (EXPORTS[:2], "GET", "/items", 1),
    ],
)
def test_the_first_cost_that_fits_is_charged(costs, method, path, cost):
    """A list of costs is read in its order; a request that fits none costs 1. All of them spend one budget."""
    compiled = responder({"key": "ip", "limits": "100/hour", "cost": costs})
    compiled.ask(method, path)
    assert compiled.left() == 100 - cost
    compiled.ask("POST", "/export/")
    assert compiled.left() == 75 - cost


def test_mistakes_in_a_list_of_costs_are_told_with_their_places():
    """Each place of the list is read as a cost with an optional `match`."""
    with pytest.raises(InvalidPolicy) as caught:
        Policy({"rules": [{"key": "ip", "limits": "9/hour", "cost": [{"match": {"path": "/x"}}, {"costs": 3}, 4]}]})
    need = "expected a cost, as in {match: {path: /export}, cost: 25}"
    assert caught.value.mistakes == (
        f"rules[0].cost[0]: {need}",
        "rules[0].cost[1].costs: unknown field 'costs'; did you mean 'cost'?",
        f"rules[0].cost[1]: {need}",
        "rules[0].cost[2]: expected fields (match, cost); got 4",
    )
    with pytest.raises(InvalidPolicy, match="got an empty list"):
        Policy({"rules": [{"key": "ip", "limits": "9/hour", "cost": []}]})
