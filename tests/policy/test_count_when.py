"""Rules that count some requests and block others: `count.when` names the first, `match` the second."""

from __future__ import annotations

import warnings

import pytest

from headgate.limit import LimitWarning
from headgate.policy import Policy
from tests.support.edges import Responder, responder
from tests.support.stores import away

FAILED_LOGINS = {"limits": "2/hour", "count": {"when": {"method": "POST", "path": "/login", "status": 401}}}


def login(compiled: Responder, status: int) -> str:
    """One attempt to log in, answered with this status if it passes."""
    outcome = compiled.ask("POST", "/login")
    if outcome.kind == "pass":
        compiled.answer(outcome, status)
    return outcome.kind


def test_failed_logins_are_counted_and_every_request_is_refused_for_them():
    """Reads and successes cost nothing; after two failures the client is refused everywhere, until they have left."""
    compiled = responder(FAILED_LOGINS)
    assert compiled.kinds(50, "GET", "/items") == ["pass"] * 50
    assert [login(compiled, 200) for _ in range(5)] == ["pass"] * 5
    assert (login(compiled, 401), compiled.left()) == ("pass", 1)
    assert compiled.kinds(3, "GET", "/items") == ["pass"] * 3
    assert (login(compiled, 401), compiled.left()) == ("pass", 0)
    assert compiled.kinds(2, "GET", "/items") == ["deny", "deny"]
    assert login(compiled, 200) == "deny"
    assert compiled.wait("GET", "/items") == 1800.0
    compiled.clock.advance(1800)
    assert compiled.kinds(3, "GET", "/items") == ["pass"] * 3


def test_requests_that_are_only_asked_about_leave_no_charge_beside_rules_that_charge():
    """A rule that looks and one that charges decide one after the other; a refusal by the first charges nothing."""
    compiled = responder(FAILED_LOGINS, {"limits": "100/hour", "name": "all"})
    compiled.kinds(3, "GET", "/items")
    assert (compiled.left(0), compiled.left(1)) == (2, 97)
    login(compiled, 401)
    login(compiled, 401)
    assert compiled.kinds(4, "GET", "/items") == ["deny"] * 4
    assert compiled.left(1) == 95


def test_a_crowd_of_reads_is_not_refused_for_its_size():
    """Requests under way that do not count hold nothing, however many there are."""
    compiled = responder(FAILED_LOGINS)
    under_way = [compiled.ask("GET", "/items") for _ in range(100)]
    assert {outcome.kind for outcome in under_way} == {"pass"}
    assert compiled.left() == 2


def test_a_block_holds_for_requests_that_do_not_count():
    """With `for`, the block that failed logins start refuses reads until its end."""
    compiled = responder({**FAILED_LOGINS, "limits": "2/minute", "for": "10m"})
    for _ in range(2):
        login(compiled, 401)
    assert login(compiled, 401) == "deny"
    assert compiled.wait("GET", "/items") == 600.0


def test_conditions_alone_need_no_status():
    """Without a status, requests that fit are charged whatever their response."""
    compiled = responder({"limits": "2/hour", "count": {"when": {"header": {"x-bot-score": {"below": 30}}}}})
    bot = {"headers": {"x-bot-score": "3"}}
    assert compiled.kinds(9) == ["pass"] * 9
    assert compiled.kinds(3, **bot) == ["pass", "pass", "deny"]
    assert compiled.kinds(1) == ["deny"]


def test_a_rule_that_observes_looks_too():
    """A rule that only observes charges what it counts, and refuses nothing."""
    compiled = responder({**FAILED_LOGINS, "act": "observe"})
    for _ in range(5):
        login(compiled, 401)
    assert compiled.kinds(3, "GET", "/items") == ["pass"] * 3
    assert compiled.left() == 0


@pytest.mark.parametrize(("on_error", "kind"), [("local", "pass"), ("allow", "pass"), ("deny", "deny")])
def test_an_outage_is_answered_by_on_error(on_error, kind):
    """A request that is only asked about is treated as any other while the store is away; locally, too, uncharged."""
    compiled = responder({**FAILED_LOGINS, "on_error": on_error, "store": "far"}, at={"far": away()})
    assert compiled.kinds(5, "GET", "/items") == [kind] * 5


def test_a_match_that_leaves_out_what_is_counted_is_warned_of():
    """Requests that a rule does not apply to are not counted by it."""
    with pytest.warns(LimitWarning, match="rule api: of the requests that count.when names, match leaves out some"):
        Policy({"rules": [{"name": "api", "match": {"path": "/api/**"}, "key": "ip", **FAILED_LOGINS}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Policy({"rules": [{"match": {"path": ["/login", "/api/**"]}, "key": "ip", **FAILED_LOGINS}]})
