"""Rules in stores that are slow, broken, or several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import StoreError
from headgate.policy import Policy
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.settling import settle
from headgate.steps import run_awaiting
from tests.support.edges import responder, still, view
from tests.support.stores import Slow, away

LOGIN: dict[str, Any] = {"match": {"path": "/login"}, "count": {"when": {"status": [401, 403]}}}


def test_layers_in_several_stores_give_back_when_a_later_one_refuses():
    """The store in front is charged first, and not for what the one behind refused."""
    near, far = still(), still()
    rules = [{"name": "near", "store": "near", "limits": "9/minute"}, {"name": "far", "store": "far"}]
    judged = responder(*rules, at={"near": near, "far": far})
    assert judged.kinds(5) == ["pass", "pass", "deny", "deny", "deny"]
    assert judged.left(0, "near") == 7


ON_ERROR = {"local": ["pass", "pass", "deny"], "allow": ["pass"] * 3, "deny": ["deny"] * 3, "raise": ["deny"] * 3}


@pytest.mark.parametrize("on_error", ON_ERROR)
def test_a_store_that_cannot_answer_leaves_it_to_each_rule(on_error, caplog):
    """Each rule is decided by this process's own memory, open, or closed with 503; the log says so."""
    judged = responder({"store": "far", "on_error": on_error}, at={"far": away()})
    outcomes = [judged.ask() for _ in range(3)]
    assert [outcome.kind for outcome in outcomes] == ON_ERROR[on_error]
    assert {outcome.status for outcome in outcomes if outcome.kind == "deny"} <= {429 if on_error == "local" else 503}
    assert "the cable was cut" in caplog.text


def test_a_broken_layer_gives_back_what_the_one_before_it_charged():
    """Refused by `deny` of the broken one, the request costs nothing in the other."""
    near = still()
    rules = [{"store": "near"}, {"store": "far", "on_error": "deny"}]
    judged = responder(*rules, at={"near": near, "far": away()})
    assert [judged.ask().status for _ in range(5)] == [503] * 5


def test_of_rules_in_one_broken_store_each_keeps_its_own_word():
    """Allowed by one, counted by the other; and what one refuses is refused."""
    open_, local, closed = ({"name": word, "on_error": word, "store": "far"} for word in ("allow", "local", "deny"))
    judged = responder(open_, {**local, "limits": "3/minute"}, at={"far": away()})
    assert judged.kinds(4) == ["pass", "pass", "pass", "deny"]
    refused = responder(open_, closed, at={"far": away()}).ask()
    assert refused.rule is not None and (refused.status, refused.rule.name) == (503, "deny")


def test_a_store_that_fails_while_a_response_is_counted_fails_nobody(caplog):
    """The charge stays, and the log says so."""
    store = away(answers=1)
    judged = responder({**LOGIN, "store": "far"}, at={"far": store})
    outcome = judged.ask("POST", "/login")

    def refund(*_: Any) -> None:
        raise StoreError("the cable was cut")

    outcome.charges[0].group.gate.refund = refund
    judged.answer(outcome, 200)
    assert "a charge could not be corrected: the cable was cut" in caplog.text


def test_a_broken_store_changes_who_counts_and_not_what_a_no_looks_like():
    """A shadow stays a shadow."""
    judged = responder({"store": "far", "act": {"shadow": {"status": 202}}}, at={"far": away()})
    outcomes = [judged.ask() for _ in range(3)]
    assert [(outcome.kind, outcome.status) for outcome in outcomes] == [("pass", 200), ("pass", 200), ("shadow", 202)]


def test_without_the_store_only_the_statuses_named_are_counted_too():
    """Good logins do not use up the limit while the store is down."""
    judged = responder({**LOGIN, "store": "far"}, at={"far": away()})
    for _ in range(5):
        outcome = judged.ask("POST", "/login")
        assert outcome.kind == "pass"
        judged.answer(outcome, 200)


def test_what_was_counted_locally_is_given_back_when_a_later_layer_refuses():
    """The broken layer in front is not charged for what the one behind refused."""
    near = still()
    rules = [{"store": "far", "limits": "3/hour"}, {"store": "near", "limits": "1/minute"}]
    judged = responder(*rules, at={"far": away(), "near": near})
    assert judged.kinds(5) == ["pass"] + ["deny"] * 4
    near.clear("policy")
    assert judged.kinds(2) == ["pass", "deny"]


def test_more_limits_than_a_store_has_tables_for_follow_on_error():
    """A policy of three hundred rules in memory is served, not an exception at request 257."""
    rules = [{"name": f"r{at}", "match": {"path": f"/{at}"}, "on_error": "deny"} for at in range(300)]
    judged = responder(*rules)
    assert {judged.ask("GET", f"/{at}").status for at in range(300)} <= {200, 503}


def test_attempts_at_once_in_an_event_loop_and_by_a_slow_store():
    """Ten coroutines that all wait for the store: two pass."""

    async def attempts() -> list[str]:
        store = Slow(still())
        policy = Policy({"rules": [{"key": "ip", "limits": "2/minute", **LOGIN}]})
        compiled = CompiledPolicy(policy, {"": store}, awaited=True)

        async def attempt() -> str:
            outcome = await run_awaiting(compiled.before(view("POST", "/login")))
            if outcome.kind == "pass":
                await asyncio.sleep(0)
                for charge in outcome.charges:
                    await run_awaiting(settle(charge, None, 401, lambda name: None))
            return outcome.kind

        return sorted(await asyncio.gather(*(attempt() for _ in range(10))))

    assert asyncio.run(attempts()) == ["deny"] * 8 + ["pass"] * 2
