"""Rules about what is in flight: held while a request is under way, whatever its response says."""

from __future__ import annotations

import math

import pytest

from headgate import InvalidLimit
from headgate.policy import Policy
from headgate.policy.outcome import Outcome
from headgate.policy.settling import release
from headgate.steps import run
from tests.support.edges import Responder, responder, still
from tests.support.stores import away

FLIGHT = {"name": "flight", "limits": "2 in flight"}


def end(judged: Responder, outcome: Outcome) -> None:
    run(release(outcome.charges))


def test_a_request_is_held_until_it_ends_not_until_it_is_answered():
    """The response frees nothing; the end of the request does."""
    judged = responder(FLIGHT)
    first, _, third = (judged.ask() for _ in range(3))
    assert (first.kind, third.kind, third.status) == ("pass", "deny", 429)
    assert third.decision is not None and math.isinf(third.decision.retry_after)
    judged.answer(first, 200)
    assert judged.kinds(1) == ["deny"]
    end(judged, first)
    assert judged.kinds(2) == ["pass", "deny"]


def test_ending_twice_ends_one():
    """The second end of a request does not free a permit of another one."""
    judged = responder(FLIGHT)
    first, _ = judged.ask(), judged.ask()
    end(judged, first)
    end(judged, first)
    assert judged.kinds(2) == ["pass", "deny"]


def test_rates_stay_charged_when_a_request_ends():
    """A rule with a rate and a permit gives back the permit alone."""
    judged = responder({"name": "both", "limits": "3/minute; 2 in flight"})
    for _ in range(3):
        outcome = judged.ask()
        assert outcome.kind == "pass"
        end(judged, outcome)
    refused = judged.ask()
    assert refused.decision is not None and refused.decision.retry_after == 20.0


def test_a_no_of_either_charges_neither():
    """A request refused by the permit costs nothing of the rate, and the other way round."""
    judged = responder(FLIGHT, {"name": "rate", "limits": "3/minute"})
    held = [judged.ask() for _ in range(2)]
    assert judged.kinds(5) == ["deny"] * 5
    assert judged.left(1) == 1
    for outcome in held:
        end(judged, outcome)
    end(judged, judged.ask())
    assert judged.kinds(1) == ["deny"]
    assert judged.left(0) == 2


def test_what_the_response_says_is_not_about_what_is_in_flight():
    """Statuses that do not count are given back of the rate only; a cost in a header is charged to the rate only."""
    rule = {
        "name": "login", "limits": "4/minute; 3 in flight",
        "count": {"when": {"status": [200]}}, "cost": {"after": {"header": "x-cost"}},
    }  # fmt: skip
    judged = responder(rule)
    first, second = judged.ask(), judged.ask()
    judged.answer(first, 500)
    judged.answer(second, 200, x_cost="3")
    assert [judged.left_of(0, at) for at in (0, 1)] == [1, 1]
    end(judged, first)
    end(judged, second)
    assert [judged.left_of(0, at) for at in (0, 1)] == [1, 3]


def test_refusals_that_count_hold_nothing():
    """A refused request that is charged to the rate holds no permit, whichever of the limits has refused it."""
    for permits in (1, 5):
        judged = responder({"name": "strict", "limits": f"1/minute; {permits} in flight", "count": {"refused": True}})
        first = judged.ask()
        assert judged.kinds(3) == ["deny"] * 3
        assert [judged.left_of(0, at) for at in (0, 1)] == [0, permits - 1]
        end(judged, first)
        assert [judged.left_of(0, at) for at in (0, 1)] == [0, permits]


def test_what_is_watched_ends_too():
    """Requests under a rule that observes hold permits beyond the limit, and give all of them back."""
    judged = responder({**FLIGHT, "act": "observe"})
    outcomes = [judged.ask() for _ in range(3)]
    assert [outcome.kind for outcome in outcomes] == ["pass"] * 3
    assert judged.left() == 0
    for outcome in outcomes:
        end(judged, outcome)
    assert judged.left() == 2


@pytest.mark.parametrize("act", ["observe", "mark"])
def test_a_request_that_another_rule_refuses_holds_no_watched_permit(act):
    """A rule that lets every request pass holds permits of served requests only."""
    judged = responder({**FLIGHT, "act": act}, {"name": "strict", "limits": "1/minute"})
    first = judged.ask()
    assert judged.kinds(3) == ["deny"] * 3
    assert judged.left() == 1
    end(judged, first)
    assert judged.left() == 2


def test_a_later_store_that_refuses_gives_back_what_an_earlier_one_holds():
    """A permit taken in the first store is free again when the second one refuses."""
    near, far = (still() for _ in range(2))
    rules = [{**FLIGHT, "store": "near"}, {"name": "far", "store": "far", "limits": "1/minute"}]
    judged = responder(*rules, at={"near": near, "far": far})
    assert judged.kinds(4) == ["pass"] + ["deny"] * 3
    assert judged.left(0, "near") == 1


def test_each_kind_of_store_error_leaves_nothing_held():
    """A store that is away is answered for by this process, which holds and frees as it would."""
    judged = responder({**FLIGHT, "store": "far"}, at={"far": away()})
    outcomes = [judged.ask() for _ in range(3)]
    assert [outcome.kind for outcome in outcomes] == ["pass", "pass", "deny"]  # by this process alone
    end(judged, outcomes[0])
    assert judged.kinds(2) == ["pass", "deny"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"act": "delay"}, "a delay needs a limit of the bucket family"),
        ({"for": "10m"}, "a limit in flight cannot have a block"),
    ],
)
def test_what_makes_no_sense_for_it_is_told(rule, said):
    """A delay or a block on a limit of what is in flight is a mistake of the policy."""
    with pytest.raises(ValueError, match=said):
        Policy.load({"rules": [{"key": "ip", "limits": "2 in flight", **rule}]})
    assert issubclass(InvalidLimit, ValueError)


def test_each_request_has_to_be_looked_at():
    """A fast_path keeps nothing of a request, and so could not end it."""
    for judged, looks in ((responder(FLIGHT), True), (responder(), False)):
        fast_path = judged.compiled.fast_path(judged.compiled.policy.find("GET", "/"), "GET")
        assert (fast_path is None) is looks
