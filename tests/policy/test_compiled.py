"""What happens to a request: counted, refused, held, answered in its place, or only watched."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headgate import InvalidLimit, Limiter, LimitWarning
from headgate.errors import InvalidPolicy
from headgate.policy.policy import Policy
from headgate.policy.settling import refund
from tests.support.edges import responder


def test_deny_is_429_with_the_rule_and_the_exact_wait():
    """Two a minute: the third waits 30 s, and at 30 s it passes."""
    judged = responder({"name": "api"})
    first, _, third = (judged.ask() for _ in range(3))
    assert (first.kind, first.status, first.decision and first.decision.remaining) == ("pass", 200, 1)
    assert (third.kind, third.status, third.rule and third.rule.name) == ("deny", 429, "api")
    assert third.decision is not None and third.decision.retry_after == 30.0
    judged.clock.advance(29.999999)
    assert judged.kinds(1) == ["deny"]
    judged.clock.advance(0.000001)
    assert judged.kinds(2) == ["pass", "deny"]


def test_where_no_rule_applies_nothing_is_asked():
    """The outcome names no rule and holds nothing."""
    judged = responder({"match": {"path": "/api/**"}})
    outcome = judged.ask("GET", "/")
    assert (outcome.kind, outcome.rule, outcome.decision, outcome.charges) == ("pass", None, None, ())
    assert judged.store.keys() == 0


def test_delay_holds_each_for_its_place_and_denies_when_the_queue_is_full():
    """One a second, three held: at once, after 1 s, after 2 s, then no; a second later one more."""
    judged = responder({"limits": "60/minute", "act": {"delay": {"hold": 3}}})
    outcomes = [judged.ask() for _ in range(4)]
    assert [(outcome.kind, outcome.delay_us) for outcome in outcomes] == [
        ("pass", 0), ("pass", 1_000_000), ("pass", 2_000_000), ("deny", 0),
    ]  # fmt: skip
    judged.clock.advance(1)
    last, refused = judged.ask(), judged.ask()
    assert (last.kind, last.delay_us, refused.kind) == ("pass", 2_000_000, "deny")


def test_a_queue_in_the_words_of_a_limit_is_as_long_as_it_says():
    """`queue 3` and `hold: 3` are the same."""
    judged = responder({"limits": "60/minute queue 3", "act": "delay"})
    assert [judged.ask().delay_us for _ in range(3)] == [0, 1_000_000, 2_000_000]
    assert judged.ask().kind == "deny"


def test_a_queue_is_a_clause_like_others():
    """In a list of limits too, and not where it is a name."""
    rule = {"name": "r", "key": "ip", "limits": ["60/minute queue 3 as queue", "9/hour burst 2"], "act": "delay"}
    plans = Policy.load({"rules": [rule]}).rules[0].plans or {}
    assert [str(limit) for limit in plans["default"]] == ["60/minute burst 3 as r.queue", "9/hour burst 2 as r.2"]


def test_a_queue_where_nothing_waits_is_a_mistake():
    """A rule that refuses has a burst, and so has a limiter."""
    told = "only a Shaper, or a rule with `act: delay`, makes requests wait; .* write burst 3"
    with pytest.raises(InvalidPolicy, match=f"limits: '60/minute queue 3' cannot have a queue here: {told}"):
        Policy.load({"rules": [{"key": "ip", "limits": "60/minute queue 3"}]})
    with pytest.raises(InvalidLimit, match=told):
        Limiter("60/minute queue 3")


def test_a_request_that_goes_away_while_it_is_held_leaves_its_place():
    """The next is held no longer than it would have been."""
    judged = responder({"limits": "60/minute", "act": {"delay": {"hold": 3}}})
    judged.ask()
    held = judged.ask()
    for _ in refund(held.charges):
        pass
    assert judged.ask().delay_us == held.delay_us == 1_000_000


def test_shadow_answers_in_place_of_the_app():
    """The status of its own, and nothing is told that a limit was crossed."""
    judged = responder({"act": {"shadow": {"status": 202, "body": "thanks"}}})
    outcomes = [judged.ask() for _ in range(3)]
    assert [(outcome.kind, outcome.status) for outcome in outcomes] == [("pass", 200), ("pass", 200), ("shadow", 202)]
    assert outcomes[2].rule is not None and outcomes[2].rule.act.body == b"thanks"


def test_observe_counts_and_logs_and_admits(caplog):
    """A dry run: the log has what would have been refused, and other rules decide."""
    judged = responder({"name": "dry", "act": "observe", "limits": "1/minute"}, {"name": "real"})
    with caplog.at_level(logging.INFO, "headgate.policy"):
        assert judged.kinds(3) == ["pass", "pass", "deny"]
    said = "rule dry (observe) would refuse: <Decision refused, retry after 60 s, by 1/minute as dry>"
    assert [record.getMessage() for record in caplog.records] == [said, said]
    assert responder({"act": "observe"}).ask().decision is None


LOGIN = {"match": {"path": "/login"}, "count": {"when": {"status": [401, 403]}}}


def test_only_the_statuses_named_are_counted():
    """Good logins are given back, bad ones stay; 4xx is every one of them."""
    judged = responder(LOGIN)
    for status in (200, 302, 500, 401, 200, 403):
        outcome = judged.ask("POST", "/login")
        assert outcome.kind == "pass"
        judged.answer(outcome, status)
    assert judged.kinds(1, "POST", "/login") == ["deny"]
    every = responder({"count": {"when": {"status": "4xx"}}})
    for status in (399, 400, 500, 499):
        every.answer(every.ask(), status)
    assert every.kinds(1) == ["deny"]


def test_concurrent_attempts_cannot_slip_past_what_is_counted_later():
    """Of ten logins at once two are tried; when both were good, two more may."""
    judged = responder(LOGIN)
    outcomes = [judged.ask("POST", "/login") for _ in range(10)]
    assert [outcome.kind for outcome in outcomes] == ["pass"] * 2 + ["deny"] * 8
    for outcome in outcomes[:2]:
        judged.answer(outcome, 200)
    again = [judged.ask("POST", "/login") for _ in range(3)]
    assert [outcome.kind for outcome in again] == ["pass", "pass", "deny"]
    for outcome in again[:2]:
        judged.answer(outcome, 401)
    assert judged.kinds(2, "POST", "/login") == ["deny"] * 2


def test_an_answer_counts_once():
    """Told twice of the same response, the compiled gives back once."""
    judged = responder(LOGIN)
    one, other = judged.ask("POST", "/login"), judged.ask("POST", "/login")
    judged.answer(one, 200)
    judged.answer(one, 200)
    assert judged.kinds(2, "POST", "/login") == ["pass", "deny"]
    assert other.kind == "pass"


@pytest.mark.parametrize(("method", "left"), [("GET", 9), ("POST", 5), ("PUT", 8), ("HEAD", 10)])
def test_cost_by_method(method, left):
    """A method that is not listed costs the default, and one with 0 costs nothing."""
    judged = responder({"limits": "10/minute", "cost": {"GET": 1, "POST": 5, "HEAD": 0, "default": 2}})
    judged.ask(method)
    assert judged.left() == left


def test_cost_of_a_callable():
    """It is given the request."""
    judged = responder({"limits": "10/minute", "cost": lambda seen: len(seen.path)})
    assert [judged.ask("GET", path).kind for path in ("/abc", "/", "/abcdefg")] == ["pass", "pass", "deny"]
    assert judged.left() == 5


@pytest.mark.parametrize("bad", [-5, 1.5, "1", None, True, 2**60])
def test_a_callable_whose_cost_is_no_cost_never_adds_to_a_budget(bad):
    """A negative cost would fill it up, so it is an error of the app's, as everywhere else."""
    judged = responder({"cost": lambda seen: bad})
    with pytest.raises(ValueError, match="a cost must be a whole number from 0 to 2"):
        judged.ask()


AFTER: list[tuple[dict[str, Any], int, dict[str, str], int]] = [
    ({"header": "X-Cost"}, 200, {"x_cost": "4"}, 6),
    ({"header": "X-Cost"}, 200, {"x_cost": " 0 "}, 10),
    ({"header": "X-Cost"}, 200, {}, 8),
    ({"header": "X-Cost"}, 200, {"x_cost": "-1"}, 8),
    ({"header": "X-Cost"}, 200, {"x_cost": "lots"}, 8),
    ({"status": {"5xx": 0, "404": 1}}, 503, {}, 10),
    ({"status": {"5xx": 0, "404": 1}}, 404, {}, 9),
    ({"status": {"5xx": 0, "404": 1}}, 200, {}, 8),
    ({"status": {"5xx": 0}, "header": "X-Cost"}, 500, {"x_cost": "9"}, 10),
    ({"status": {"5xx": 0}, "header": "X-Cost"}, 200, {"x_cost": "9"}, 1),
    ({"header": "X-Cost"}, 200, {"x_cost": "12"}, 0),
]


@pytest.mark.parametrize(("after", "status", "headers", "left"), AFTER)
def test_cost_after_the_response(after, status, headers, left):
    """Two are charged before; the response says what it really was, more or less, and nonsense changes nothing."""
    judged = responder({"limits": "10/minute", "cost": {"default": 2, "after": after}})
    judged.answer(judged.ask(), status, **headers)
    assert judged.left() == left


def test_what_a_response_cost_above_the_limit_is_owed():
    """Twelve of ten: two are owed, so one more fits after 18 s and not before."""
    judged = responder({"limits": "10/minute", "cost": {"after": {"header": "X-Cost"}}})
    judged.answer(judged.ask(), 200, x_cost="12")
    assert judged.wait() == 18.0


def test_several_rules_are_one_decision_and_the_binding_one_is_named():
    """All or nothing: what the hour refuses is not taken from the minute."""
    judged = responder({"name": "minute", "limits": "5/minute"}, {"name": "hour", "limits": "2/hour"})
    assert judged.kinds(4) == ["pass", "pass", "deny", "deny"]
    refused = judged.ask()
    assert refused.rule is not None and refused.decision is not None
    assert (refused.rule.name, refused.decision.binding.name) == ("hour", "hour")
    assert [verdict.remaining for verdict in refused.decision.verdicts] == [3, 0]


def test_on_a_yes_the_rule_with_the_smallest_part_left_is_named():
    """Of five a minute and two an hour, half is less than four fifths."""
    outcome = responder({"name": "minute", "limits": "5/minute"}, {"name": "hour", "limits": "2/hour"}).ask()
    assert outcome.rule is not None and outcome.rule.name == "hour"


def test_rules_count_by_keys_of_their_own():
    """One by user, one by address: a second user of the same address has the first's address against him."""
    judged = responder({"name": "user", "key": "user"}, {"name": "ip", "limits": "3/minute"})
    assert judged.kinds(3, user="ann") == ["pass", "pass", "deny"]
    assert judged.kinds(2, user="bob") == ["pass", "deny"]
    last = judged.ask(user="bob")
    assert last.rule is not None and last.rule.name == "ip"


def test_allow_goes_before_deny_and_deny_before_rules():
    """Allowed is never limited; denied is 403 without a count."""
    judged = responder({}, allow={"ip": "10.0.0.1"}, deny={"ip": "10.0.0.0/8"})
    assert judged.kinds(5, peer="10.0.0.1") == ["pass"] * 5
    refused = judged.ask(peer="10.0.0.2")
    assert (refused.kind, refused.status, refused.rule, refused.decision) == ("deny", 403, None, None)
    assert judged.store.keys() == 0
    assert judged.kinds(3) == ["pass", "pass", "deny"]


def test_a_list_may_ask_for_the_plan():
    """The plan is known before the lists are looked at."""
    judged = responder({}, plan={"claim": "plan"}, allow={"plan": "staff"}, deny={"plan": "banned"})
    assert judged.kinds(4, claims={"plan": "staff"}) == ["pass"] * 4
    assert judged.ask(claims={"plan": "banned"}).status == 403


def test_a_block_lasts_as_long_as_it_says_and_then_all_is_new():
    """`for: 10m`: refused until ten minutes are over, whatever came back in between."""
    judged = responder({"for": "10m"})
    assert judged.kinds(3) == ["pass", "pass", "deny"]
    judged.clock.advance(599.999999)
    assert judged.kinds(1) == ["deny"]
    judged.clock.advance(0.000001)
    assert judged.kinds(3) == ["pass", "pass", "deny"]


def test_refused_requests_count_only_where_that_is_asked():
    """Refused requests that count push the next one further away, and each is told the wait that it has made itself."""
    waits = {False: [30.0, 30.0, 30.0], True: [60.0, 90.0, 120.0]}
    for refused, expected in waits.items():
        judged = responder({"count": {"refused": refused}})
        judged.kinds(2)
        assert [judged.wait() for _ in range(3)] == expected


@pytest.mark.parametrize(
    "limits", ["2/minute", "2/minute burst 5 by gcra", "2/minute by sliding-log", "2/minute; 9/hour"]
)
def test_a_client_that_comes_back_as_it_was_told_is_admitted_though_its_refusal_counted(limits):
    """At the end of the wait; the wait before its own charge would have led it into the next refusal."""
    judged = responder({"limits": limits, "count": {"refused": True}})
    while judged.ask().kind == "pass":
        pass
    judged.clock.advance(judged.wait())
    assert judged.kinds(1) == ["pass"]


def test_a_refusal_is_counted_by_the_rules_that_asked_and_by_no_other():
    """A rule beside one that counts refusals is not charged for them."""
    judged = responder(
        {"name": "strict", "limits": "1/minute", "count": {"refused": True}}, {"name": "hour", "limits": "9/hour"}
    )
    assert judged.kinds(4) == ["pass", "deny", "deny", "deny"]
    assert (judged.left(1), judged.wait()) == (8, 300.0)


@pytest.mark.parametrize("answer", [None, "", ()])
def test_a_callable_may_say_that_there_is_no_limit(answer):
    """As a plan without a limit may."""
    assert responder({"limits": lambda seen: answer}).kinds(3) == ["pass"] * 3
    assert responder({"limits": {"default": "2/minute", "pro": answer}}).kinds(3, plan="pro") == ["pass"] * 3


def test_limits_that_a_callable_chooses_are_limits_like_others():
    """Several of one period, a block, a queue: as if they stood in the file."""
    several = responder({"limits": lambda seen: "5/minute; 2/minute by gcra; 3/minute"})
    assert several.kinds(3) == ["pass", "pass", "deny"]
    blocked = responder({"limits": lambda seen: "2/minute", "for": "10m"})
    blocked.kinds(2)
    assert blocked.wait() == 600.0
    queue = responder({"limits": lambda seen: "60/minute", "act": {"delay": {"hold": 2}}})
    assert [queue.ask().delay_us for _ in range(2)] == [0, 1_000_000]
    assert queue.ask().kind == "deny"


def test_limits_by_plan():
    """A plan that is not listed, and none at all, have the default's, wherever it is listed."""
    judged = responder({"limits": {"pro": "3/minute", "default": "1/minute"}, "key": "user"})
    plans = {"pro": 3, "default": 1, "other": 1, None: 1}
    for plan, most in plans.items():
        assert judged.kinds(4, user=f"of {plan}", plan=plan) == ["pass"] * most + ["deny"] * (4 - most)


def test_a_rule_with_the_longest_name_may_have_several_limits():
    """Its limits are told apart."""
    assert responder({"name": "a" * 64, "limits": "5/minute; 2/minute"}).kinds(3) == ["pass", "pass", "deny"]


@pytest.mark.parametrize(
    "limits", ["10/minute by fixed-window", "10/minute by sliding-log", "10/minute by sliding-window"]
)
def test_what_cost_more_than_a_window_has_room_for_takes_what_there_is(limits):
    """Windows and logs cannot owe: the excess takes all that is left, and no more."""
    with pytest.warns(LimitWarning):
        judged = responder({"limits": limits, "cost": {"after": {"header": "x-cost"}}})
    judged.answer(judged.ask(), x_cost="30")
    assert judged.left() == 0 and judged.ask().kind == "deny"
