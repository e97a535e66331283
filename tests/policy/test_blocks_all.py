"""`blocks: all`: a block of one rule holds under the other rules of the policy."""

from __future__ import annotations

import pytest

from headgate import InvalidPolicy, MemoryStore, Policy
from tests.policy.test_bans import IP, Counting
from tests.support.edges import asgi, plain

LOGIN = {"name": "login", "match": {"path": "/login"}, "key": "ip", "limits": "1/minute", "for": "10m", "blocks": "all"}
API = {"name": "api", "match": {"path": "/api"}, "key": "user", "limits": "100/minute"}


def test_a_block_of_one_rule_holds_under_the_others():
    """A client that is blocked at the login is refused at the API, until the block ends and as the same refusal."""
    counting = Counting(LOGIN, API)
    assert counting.ask("/api", user="ann") == "pass"
    assert [counting.ask("/login") for _ in range(2)] == ["pass", "deny"]
    counting.clock.advance(60)
    refused = counting.decide("/api", user="ann")
    assert (refused.kind, refused.rule.name, refused.decision.retry_after) == ("deny", "login", 540.0)
    assert counting.ask("/else") == "pass"  # no rule applies there
    counting.clock.advance(540)
    assert counting.ask("/api", user="ann") == "pass"
    assert counting.limits.peek("api", "ann").remaining == 99


def test_other_clients_are_not_blocked():
    """The block is of the key of the rule: another address goes on, whatever its user is."""
    counting = Counting(LOGIN, API)
    for _ in range(2):
        counting.ask("/login")
    counting.peer = "198.51.100.1"
    assert counting.ask("/api", user="ann") == "pass"


def test_a_limit_that_is_used_up_is_not_a_block_yet():
    """Only the refusal begins the block: before it the other rules admit the client."""
    counting = Counting(LOGIN, API)
    assert [counting.ask("/login"), counting.ask("/api", user="ann")] == ["pass", "pass"]


def test_a_reset_ends_the_block_everywhere():
    """`reset` of the rule ends its block under every rule."""
    counting = Counting(LOGIN, API)
    for _ in range(2):
        counting.ask("/login")
    assert counting.ask("/api", user="ann") == "deny"
    counting.limits.reset("login", IP)
    assert [counting.ask("/api", user="ann"), counting.ask("/login")] == ["pass", "pass"]


def test_a_growing_block_holds_everywhere_too():
    """The second block is longer, under every rule."""
    rule = {**LOGIN, "limits": "1/minute block 1m, 10m"}
    del rule["for"]
    counting = Counting(rule, API)
    for wait in (60.0, 600.0):
        for _ in range(2):
            counting.ask("/login")
        assert counting.decide("/api", user="ann").decision.retry_after == wait
        counting.clock.advance(wait)


def test_rules_in_fast_paths_know_the_block():
    """At an edge, a rule that is served by a fast path refuses a client that another rule has blocked."""
    app_rule = {"name": "api", "match": {"path": "/api"}, "key": "ip", "limits": "100/minute"}
    from headgate.web.asgi import RateLimitMiddleware

    app = RateLimitMiddleware(plain, {"rules": [LOGIN, app_rule]}, store=MemoryStore())
    found = [asgi(app, "GET", path).status for path in ("/api", "/api", "/login", "/api", "/login", "/api", "/api")]
    assert found == [200, 200, 200, 200, 429, 429, 429]


def test_rules_of_other_stores_know_the_block():
    """The block is kept in the store of its rule, and rules of other stores refuse the client too."""
    from headgate.web.asgi import RateLimitMiddleware

    rules = [{**LOGIN, "store": "near"}, {"name": "api", "match": {"path": "/api"}, "key": "ip", "limits": "9/hour"}]
    app = RateLimitMiddleware(plain, {"stores": {"near": "memory://"}, "rules": rules})
    found = [asgi(app, "GET", path).status for path in ("/api", "/login", "/api", "/login", "/api")]
    assert found == [200, 200, 200, 429, 429]
    app.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"blocks": "some"}, "blocks: expected"),
        ({"for": None}, "needs a block for each of its limits, as in for: 10m"),
        ({"act": "observe"}, "needs a block for each of its limits"),
        ({"key": {"param": "id"}, "match": {"path": "/login/{id}"}}, "is not in other paths: choose another key"),
    ],
)
def test_a_rule_that_cannot_block_all_is_an_error(change, says):
    """A rule without a block, with another action, or by a part of its path cannot block under other rules."""
    rule = {name: value for name, value in {**LOGIN, **change}.items() if value is not None}
    with pytest.raises(InvalidPolicy) as raised:
        Policy({"rules": [rule]})
    assert says in str(raised.value)
