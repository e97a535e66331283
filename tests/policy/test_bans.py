"""Bans of keys: made by the name of a rule, kept by the store, and refused until their end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from headgate import InvalidCall, MemoryStore, Policy
from headgate.policy import RequestView
from headgate.policy.edges import CompiledPolicy
from headgate.steps import run
from headgate.testing import ManualClock
from headgate.testing.reference import ReferenceStore

IP = "203.0.113.7"


class Counting:
    """A policy that decides about requests on a store, and the same policy bound to it."""

    def __init__(self, *rules, store=None, **policy):
        self.store: Any = store or MemoryStore(clock=ManualClock(1_700_000_000))
        self.clock: Any = self.store.clock
        self.peer = IP
        self.policy = Policy({"rules": rules, **policy})
        self.limits = self.policy.bind(self.store)
        self.compiled = CompiledPolicy(self.policy, {"": self.store}, awaited=False)

    def decide(self, path="/", **fields):
        view = RequestView("GET", path, {}, self.peer)
        for name, value in fields.items():
            setattr(view, name, value)
        return run(self.compiled.before(view))

    def ask(self, path="/", **fields):
        return self.decide(path, **fields).kind


@pytest.mark.parametrize("duration", ["1h", "1 hour", 3600, 3600.0, timedelta(hours=1)])
def test_a_ban_holds_until_its_end(duration):
    """A banned key is refused one microsecond before the end of the ban, admitted then, and nothing was charged."""
    counting = Counting({"name": "api", "key": "ip", "limits": "3/minute; 5/day by fixed-window"})
    counting.limits.ban("api", IP, duration)
    refused = counting.decide()
    assert (refused.kind, refused.status, refused.rule.name) == ("deny", 429, "api")
    assert (refused.decision.retry_after, refused.decision.reset_after, refused.decision.remaining) == (3600.0,) * 2 + (
        0,
    )
    counting.clock.advance(3599.999999)
    assert counting.decide().decision.retry_us == 1
    counting.clock.advance(0.000001)
    admitted = counting.decide()
    assert (admitted.kind, [each.remaining for each in admitted.decision.verdicts]) == ("pass", [2, 4])


def test_an_unban_ends_a_ban_and_a_reset_does_not():
    """`reset` forgets counts: a success that resets a login must not lift the ban of an operator. `unban` ends it."""
    counting = Counting({"name": "login", "key": "ip", "limits": "1/hour"})
    assert [counting.ask() for _ in range(2)] == ["pass", "deny"]
    counting.limits.ban("login", IP, "1d")
    counting.limits.reset("login", IP)
    assert counting.decide().decision.retry_after == 86400.0
    counting.limits.unban("login", IP)
    assert [counting.ask() for _ in range(2)] == ["pass", "deny"]


def test_a_ban_is_of_one_key_and_one_rule():
    """Other keys of the rule pass, and so does the same key under another rule; a request under both is refused."""
    rules = [
        {"name": name, "match": {"path": f"/{name}/**"}, "key": "user", "limits": "9/minute"} for name in ("a", "b")
    ]
    both = {"name": "both", "match": {"path": "/both"}, "key": "user", "limits": "9/minute"}
    first = {"name": "all", "match": {"path": "/both"}, "key": "everyone", "limits": "9/minute"}
    counting = Counting(*rules, first, both)
    counting.limits.ban("a", "u", "1h")
    counting.limits.ban("both", "u", "2h")
    assert [counting.ask("/a/x", user="u"), counting.ask("/a/x", user="v"), counting.ask("/b/x", user="u")] == [
        "deny", "pass", "pass",
    ]  # fmt: skip
    refused = counting.decide("/both", user="u")
    assert (refused.rule.name, refused.decision.retry_after) == ("both", 7200.0)
    assert counting.limits.peek("all").remaining == 9


def test_of_two_bans_the_later_counts():
    """A second ban that ends earlier changes nothing, and bans do not add up."""
    counting = Counting({"name": "api", "key": "ip", "limits": "3/minute"})
    for duration in ("2h", "1h", "90m"):
        counting.limits.ban("api", IP, duration)
    assert counting.limits.peek("api", IP).retry_after == 7200.0


def test_peek_shows_a_ban():
    """`peek` answers as a request would be: refused until the end of ban and limits, whichever is later."""
    counting = Counting({"name": "api", "key": "ip", "limits": "1/hour"})
    counting.limits.ban("api", IP, "10m")
    left = counting.limits.peek("api", IP)
    assert (left.allowed, left.remaining, left.retry_after, left.limit) == (False, 0, 600.0, 1)
    counting.limits.unban("api", IP)
    counting.ask()
    counting.limits.ban("api", IP, "10m")
    assert counting.limits.peek("api", IP).retry_after == 3600.0


@pytest.mark.parametrize(
    "duration", [0, -1, True, None, "soon", "1 month", 1e-9, "367 days", timedelta(0), float("nan")]
)
def test_a_time_that_is_none_is_an_error(duration):
    """A ban needs a time above 0 and of at most 366 days; nothing is banned otherwise."""
    counting = Counting({"name": "api", "key": "ip", "limits": "3/minute"})
    with pytest.raises(InvalidCall):
        counting.limits.ban("api", IP, duration)
    assert counting.ask() == "pass"


def test_every_action_and_plan_knows_bans():
    """A ban holds for a plan without limits, for requests that cost nothing, that do not count, and in a shadow."""
    counted = {"when": {"path": "/posts", "method": "POST"}}
    counting = Counting(
        {"name": "plans", "match": {"path": "/plans"}, "key": "ip", "limits": {"default": "9/hour", "pro": ""}},
        {"name": "free", "match": {"path": "/free"}, "key": "ip", "limits": "9/hour", "cost": 0},
        {"name": "posts", "match": {"path": "/posts"}, "key": "ip", "limits": "9/hour", "count": counted},
        {"name": "dark", "match": {"path": "/dark"}, "key": "ip", "limits": "9/hour", "act": "shadow"},
        {"name": "zero", "match": {"path": "/zero"}, "key": "ip", "limits": "0/hour"},
        {"name": "held", "match": {"path": "/held"}, "key": "ip", "limits": "2 in flight"},
        {"name": "seen", "match": {"path": "/seen"}, "key": "ip", "limits": "9/hour", "act": "observe"},
    )  # fmt: skip
    for rule in counting.policy.rules:
        counting.limits.ban(rule.name, IP, "1h")
    assert [counting.ask(f"/{name}") for name in ("plans", "free", "posts", "dark", "zero", "held")] == [
        "deny", "deny", "deny", "shadow", "deny", "deny",
    ]  # fmt: skip
    unlimited = counting.decide("/plans", plan="pro")
    assert (unlimited.kind, unlimited.status) == ("deny", 429)
    assert counting.decide("/zero").decision.never
    assert counting.ask("/seen") == "pass"
    counts = counting.compiled.counts.values()
    assert (counts["seen"].observed, counts["plans"].refused, counts["dark"].shadowed) == (1, 2, 1)


async def _nothing() -> Any:
    return None


class Elsewhere:
    """A store that another process shares: what it knows of bans, it is told by the store only."""

    def __init__(self, clock):
        self.inner = ReferenceStore(clock=clock)
        self.asked = 0
        self.broken = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def bind(self, namespace, limits):
        bound, store = self.inner.bind(namespace, limits), self

        class Bound:
            limits = bound.limits

            def __getattr__(self, name):
                return getattr(bound, name)

            def run(self, *given):
                store.asked += 1
                if store.broken:
                    raise OSError("away")
                return bound.run(*given)

        return Bound()


@pytest.fixture
def two():
    """Two processes, each with its own object for one store: an operator's, and one that serves requests."""
    clock = ManualClock(1_700_000_000)
    inner = ReferenceStore(clock=clock)
    stores = Elsewhere(clock), Elsewhere(clock)
    for store in stores:
        store.inner = inner
    rule = {"name": "api", "key": "ip", "limits": "1000/minute"}
    other = {"name": "other", "match": {"path": "/other"}, "key": "ip", "limits": "1000/minute"}
    return Counting(rule, other, store=stores[0]), Counting(rule, other, store=stores[1])


def test_a_ban_made_elsewhere_holds_within_a_second(two):
    """Another process refuses half a second after the ban at the latest, and admits as soon after the unban."""
    operator, server = two
    assert server.ask() == "pass"
    operator.limits.ban("api", IP, "1h")
    server.clock.advance(0.499999)
    assert server.ask() == "pass"
    server.clock.advance(0.000001)
    assert server.decide().decision.retry_after == 3599.5
    operator.limits.unban("api", IP)
    server.clock.advance(0.5)
    assert server.ask() == "pass"


def test_an_idle_process_looks_before_it_decides(two):
    """The first request after an idle time is refused already."""
    operator, server = two
    assert server.ask() == "pass"
    operator.limits.ban("api", IP, "1h")
    server.clock.advance(60)
    assert server.ask() == "deny"


def test_rules_that_were_never_banned_are_looked_at_twice_a_second(two):
    """Between two looks a decision asks the store once; a rule without bans stays so while another has bans."""
    operator, server = two
    server.ask("/other")
    before = server.store.asked
    for _ in range(10):
        server.ask("/other")
    assert server.store.asked == before + 10
    operator.limits.ban("api", "203.0.113.8", "1h")
    server.clock.advance(1)
    server.ask("/other")
    before = server.store.asked
    for _ in range(10):
        server.ask("/other")
    assert server.store.asked == before + 10


def test_a_known_ban_outlives_the_store(two):
    """While the store is away, a key that is known as banned stays refused, and others follow `on_error`."""
    operator, server = two
    operator.limits.ban("api", IP, "1h")
    assert server.ask() == "deny"
    server.store.broken = True
    server.clock.advance(10)
    refused = server.decide()
    assert (refused.kind, refused.status, refused.decision.retry_after) == ("deny", 429, 3590.0)


def test_fast_paths_end_where_a_rule_has_bans():
    """A fast path answers until a ban of its rule is made in this process, and serves the rule again after its end."""
    from headgate.web.asgi import RateLimitMiddleware
    from tests.support.edges import plain

    clock = ManualClock(1_700_000_000)
    store = MemoryStore(clock=clock)
    rules = [{"name": "api", "key": "ip", "limits": "1000/minute"}]
    app = RateLimitMiddleware(plain, {"rules": rules}, store=store)

    async def statuses(times=1):
        found = []
        for _ in range(times):
            sent: list[Any] = []
            scope = {
                "type": "http",
                "method": "GET",
                "path": "/",
                "headers": [],
                "client": (IP, 1),
                "query_string": b"",
            }

            async def send(message, sent=sent):
                sent.append(message)

            await app(scope, _nothing, send)
            found.append(sent[0]["status"])
        return found

    async def main():
        found = await statuses(3)
        await app.aban("api", IP, "10s")
        found += await statuses(2)
        clock.advance(10)
        found += await statuses(2)
        Policy({"rules": rules}).bind(store).ban("api", IP, 5)
        return found + await statuses(2)

    assert asyncio.run(main()) == [200, 200, 200, 429, 429, 200, 200, 429, 429]


def test_hostile_keys_are_banned_alone():
    """Keys with separators, escapes and great length are banned as requests have them, and name no other key."""
    counting = Counting({"name": "api", "key": ["user", "ip"], "limits": "9/minute"})
    for user in ("a|b", "a\\pb", "*", "", "\\e", "x" * 5000, "\0", "api", "\ud800"):
        assert counting.ask(user=user) == "pass", user
        counting.limits.ban("api", (user, IP), "1h")
        assert counting.ask(user=user) == "deny", user
    assert counting.ask(user="a") == "pass"


def test_bans_are_logged(caplog):
    """A ban and an unban by the app are lines of the log, as a reset is; control characters cannot forge others."""
    counting = Counting({"name": "api", "key": "user", "limits": "3/minute"})
    with caplog.at_level("INFO", "headgate"):
        counting.limits.ban("api", "u\n1", "1h")
        counting.limits.unban("api", "u\n1")
    assert [message for message in caplog.messages if "the app" in message] == [
        "the app banned for 3600 s the key u\\n1 of rule api",
        "the app unbanned the key u\\n1 of rule api",
    ]
