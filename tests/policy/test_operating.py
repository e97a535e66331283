"""One key of a rule, operated by code: `peek` and `reset` by the name of the rule and the values of its key."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from headgate import InvalidCall, MemoryStore, Policy, StoreError
from headgate.policy import RequestView
from headgate.policy.edges import CompiledPolicy
from headgate.steps import run
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import plain


class Counting:
    """A policy that counts requests, and the same policy bound to the same store."""

    def __init__(self, *rules, **policy):
        self.clock = ManualClock(1_700_000_000)
        store = MemoryStore(clock=self.clock)
        self.policy = Policy({"rules": rules, **policy})
        self.limits = self.policy.bind(store)
        self._compiled = CompiledPolicy(self.policy, {"": store}, awaited=False)

    def ask(self, path="/", peer="203.0.113.7", **fields):
        headers = {name: [value] for name, value in fields.pop("headers", {}).items()}
        view = RequestView("GET", path, headers, peer)
        for name, value in fields.items():
            setattr(view, name, value)
        return run(self._compiled.before(view)).kind


@pytest.mark.parametrize(
    ("key", "sent", "given"),
    [
        ("ip", {}, "203.0.113.7"),
        ("ip", {"peer": "2001:db8:0:1:ffff::1"}, "2001:db8:0:1::9"),
        ("user", {"user": "a|b\\c"}, "a|b\\c"),
        ("user", {"user": ""}, ""),
        ("user", {"user": "x" * 2000}, "x" * 2000),
        ({"header": "X-API-Key"}, {"headers": {"x-api-key": " s3cret "}}, "s3cret"),
        ({"header": "authorization"}, {"headers": {"authorization": "bearer  abc"}}, "Bearer abc"),
        ({"query": "token"}, {"query_string": "token=a+b%2Bc"}, "a b+c"),
        ({"cookie": "session"}, {"headers": {"cookie": 'x=1; session="abc"'}}, "abc"),
        ({"claim": "sub"}, {"claims": {"sub": 42}}, 42),
        ({"param": "id"}, {"path": "/items/7"}, "7"),
        ("host", {"headers": {"host": "API.example.com:443"}}, "api.example.com"),
        ("path", {"path": "/a//b/"}, "/a/b"),
        ("method", {}, "get"),
        ("everyone", {}, None),
        ({"constant": "all|of\\them"}, {}, None),
        (lambda view: "made", {}, "made"),
        (["user", "ip"], {"user": "u1"}, ("u1", "203.0.113.7")),
        (["user", {"header": "x-key"}], {"user": "u", "headers": {"x-key": "k"}}, {"header x-key": "k", "user": "u"}),
        (["ip", "everyone"], {}, "203.0.113.7"),
        ("user", {}, {"ip": "203.0.113.7"}),
        (["user", "ip"], {}, {"ip": "203.0.113.7"}),
    ],
)
def test_values_find_the_key_of_the_request_that_has_them(key, sent, given):
    """A key from values of code is the key of a request: hashed, escaped, as a network, and with missing parts."""
    match = {"path": "/items/{id}"} if key == {"param": "id"} else {}
    counting = Counting({"name": "api", "match": match, "key": key, "limits": "3/minute"})
    counting.ask(**sent)
    assert counting.limits.peek("api", given).remaining == 2
    counting.limits.reset("api", given)
    assert counting.limits.peek("api", given).remaining == 3


def test_a_pepper_is_used_inside(monkeypatch):
    """With a pepper the same value finds the same key."""
    monkeypatch.setenv("HEADGATE_TEST_PEPPER", "salt")
    rule = {"name": "api", "key": {"header": "x-key"}, "limits": "3/minute"}
    counting = Counting(rule, pepper={"env": "HEADGATE_TEST_PEPPER"})
    counting.ask(headers={"x-key": "k"})
    assert counting.limits.peek("api", "k").remaining == 2


@pytest.mark.parametrize(
    ("rule", "key", "says"),
    [
        ("apl", "u", "no rule 'apl'; did you mean 'api'?"),
        ("api", ("u", "v"), "the key of rule api needs a value for user; got 2 values"),
        ("api", None, "the key of rule api needs a value for user; got 0 values"),
        ("api", {"usr": "u"}, "the key of rule api has no part 'usr'; did you mean 'user'?"),
        (
            "api",
            {},
            "user of the key of rule api is missing; give it or, for requests without it, the client's address",
        ),
        ("pair", "u", "the key of rule pair needs a value for user and for ip, as a tuple in this order; got 1 values"),
        ("strict", {}, "rule strict counts no request without user (missing: deny)"),
        ("all", "u", "the key of rule all needs no value, as it is the same for every request; got 1 values"),
    ],
)
def test_a_wrong_name_or_key_is_an_error_that_says_what_to_write(rule, key, says):
    """An unknown rule, a part that does not exist and a number of values that does not fit raise `InvalidCall`."""
    rules = [
        ("api", "user", "ip"),
        ("pair", ["user", "ip"], "ip"),
        ("strict", "user", "deny"),
        ("all", "everyone", "ip"),
    ]
    counting = Counting(*({"name": n, "key": k, "missing": m, "limits": "3/minute"} for n, k, m in rules))
    limits = counting.limits
    for verb in (limits.peek, limits.reset, limits.unban, lambda rule, key: limits.ban(rule, key, "1h")):
        with pytest.raises(InvalidCall) as raised:
            verb(rule, key)
        assert str(raised.value).startswith(says)


def test_the_answer_is_over_all_limits_of_the_rule():
    """`peek` answers for every limit of the rule at once, for the cost asked, and charges none."""
    counting = Counting({"name": "api", "key": "ip", "limits": "3/minute; 5/hour", "cost": 2})
    counting.ask()
    for _ in range(2):
        left = counting.limits.peek("api", "203.0.113.7", 2)
        assert [verdict.remaining for verdict in left.verdicts] == [1, 3]
        assert (left.allowed, left.retry_after) == (False, 20.0)


@pytest.mark.parametrize(
    ("limits", "ends"),
    [
        ("2/month in Europe/Berlin", datetime(2023, 12, 1, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()),
        ("2/hour by fixed-window scattered", None),
    ],
)
def test_windows_with_seams_of_their_own_tell_when_they_end(limits, ends):
    """A month of a zone, and a window of this key alone: the wait is that of a limiter with the same limit and key."""
    counting = Counting({"name": "api", "key": "ip", "limits": limits})
    assert [counting.ask() for _ in range(3)] == ["pass", "pass", "deny"]
    left = counting.limits.peek("api", "203.0.113.7")
    assert (left.allowed, left.remaining) == (False, 0)
    if ends is not None:
        assert left.retry_after == ends - 1_700_000_000
    counting.clock.us += left.retry_us - 1
    assert counting.ask() == "deny"
    counting.clock.us += 1
    assert counting.ask() == "pass"
    counting.limits.reset("api", "203.0.113.7")
    assert counting.limits.peek("api", "203.0.113.7").remaining == 2


def test_a_rule_with_more_limits_than_a_decision_takes():
    """A rule of 100 limits has one answer, and one reset."""
    counting = Counting({"name": "api", "key": "ip", "limits": [f"{at}/hour as n{at}" for at in range(1, 101)]})
    counting.ask()
    assert [verdict.remaining for verdict in counting.limits.peek("api", "203.0.113.7").verdicts] == list(range(100))
    counting.limits.reset("api", "203.0.113.7")
    left = counting.limits.peek("api", "203.0.113.7")
    assert [verdict.remaining for verdict in left.verdicts] == list(range(1, 101))
    assert (left.allowed, left.binding.name) == (True, "api.n1")


def test_plans():
    """A rule with plans is asked with a plan, an unlisted one is the default, and a reset holds for every plan."""
    limits = {"default": "2/minute", "pro": "10/minute; 50/hour", "free": ""}
    counting = Counting({"name": "api", "key": "user", "limits": limits})
    counting.ask(user="u", plan="pro")
    with pytest.raises(
        InvalidCall, match="other limits for each plan; write plan='default' or another of default, pro"
    ):
        counting.limits.peek("api", "u")
    with pytest.raises(InvalidCall, match="rule api has no limit for the plan 'free'"):
        counting.limits.peek("api", "u", plan="free")
    assert [each.remaining for each in counting.limits.peek("api", "u", plan="pro").verdicts] == [9, 49]
    assert counting.limits.peek("api", "u", plan="gold").limit == 2
    counting.limits.reset("api", "u")
    assert [each.remaining for each in counting.limits.peek("api", "u", plan="pro").verdicts] == [10, 50]


def test_limits_from_a_function():
    """If a function of the app gives the limits, the caller gives them too; other rules take none."""
    counting = Counting(
        {"name": "api", "key": "user", "limits": lambda view: "7/minute"},
        {"name": "other", "key": "user", "limits": "7/minute"},
    )
    counting.ask(user="u")
    with pytest.raises(InvalidCall, match="are a function of the request; write limit='100/minute'"):
        counting.limits.peek("api", "u")
    assert counting.limits.peek("api", "u", limit="7/minute").remaining == 6
    counting.limits.reset("api", "u", limit="7/minute")
    assert counting.limits.peek("api", "u", limit="7/minute").remaining == 7
    with pytest.raises(InvalidCall, match="rule other has limits of its own"):
        counting.limits.peek("other", "u", limit="7/minute")


def test_a_reset_ends_a_block():
    """A blocked key is refused until the block ends; a reset ends it at once."""
    counting = Counting({"name": "login", "key": "ip", "limits": "1/minute", "for": "10m"})
    assert [counting.ask() for _ in range(2)] == ["pass", "deny"]
    assert counting.limits.peek("login", "203.0.113.7").retry_after == 600.0
    counting.limits.reset("login", "203.0.113.7")
    assert counting.ask() == "pass"


def test_a_store_that_does_not_answer_is_an_error():
    """No count of this process is shown or forgotten in place of the store's."""
    with Policy({"rules": [{"name": "api", "key": "ip", "limits": "1/hour"}]}).bind(
        "redis://127.0.0.1:9?deadline=0.2"
    ) as limits:
        with pytest.raises(StoreError):
            limits.peek("api", "203.0.113.7")
        with pytest.raises(StoreError):
            limits.reset("api", "203.0.113.7")
        with pytest.raises(StoreError):
            limits.ban("api", "203.0.113.7", "1h")


def test_rules_on_stores_of_their_own():
    """A rule that names a store is asked there, awaited too."""
    policy = Policy({"stores": {"near": "memory://"}, "rules": [{"key": "ip", "limits": "1/hour", "store": "near"}]})

    async def main():
        async with policy.bind() as limits:
            await limits.areset("rule-1", "203.0.113.7")
            return (await limits.apeek("rule-1", "203.0.113.7")).remaining

    assert asyncio.run(main()) == 1


def test_a_running_event_loop_is_not_blocked():
    """At an edge of event loops, `peek` in the loop is an error that names `apeek`, on every store."""
    limits = RateLimitMiddleware(plain, {"rules": [{"name": "api", "key": "ip", "limits": "1/hour"}]})

    async def main():
        with pytest.raises(InvalidCall, match=r"write await limits\.apeek\(\.\.\.\)"):
            limits.peek("api", "203.0.113.7")
        with pytest.raises(InvalidCall, match=r"write await limits\.areset\(\.\.\.\)"):
            limits.reset("api", "203.0.113.7")
        in_thread = await asyncio.to_thread(limits.peek, "api", "203.0.113.7")
        return in_thread.remaining, (await limits.apeek("api", "203.0.113.7")).remaining

    assert asyncio.run(main()) == (1, 1)


def test_a_reset_from_code_is_logged_as_the_store_has_the_key(caplog):
    """At INFO, with rule and key: a secret as its hash, an address as its hash if the edge hashes addresses."""
    rules = [
        {"name": "api", "key": {"header": "x-api-key"}, "limits": "5/hour"},
        {"name": "ip", "key": "ip", "limits": "5/hour"},
    ]
    limits = RateLimitMiddleware(plain, {"rules": rules}, hash_addresses=True)
    with caplog.at_level(logging.INFO, "headgate.key"):
        Policy({"rules": rules}).bind(MemoryStore()).reset("ip", "203.0.113.7")
        limits.reset("api", "s3cret")
        asyncio.run(limits.areset("ip", "203.0.113.7"))
    assert caplog.messages[0] == "the app reset the key 203.0.113.7 of rule ip"
    assert [line.rule for line in caplog.records] == ["ip", "api", "ip"]
    assert all(line.key.startswith("\\h") for line in caplog.records[1:])
    assert "s3cret" not in caplog.text and "203.0.113.7" not in caplog.text.partition("rule ip")[2]
