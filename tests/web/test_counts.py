"""`middleware.counts()`: the result of each rule for each request, exact on the fast path and on the steps."""

from __future__ import annotations

import threading

import pytest

from headgate import MemoryStore
from headgate.policy.edges import RuleCounts
from headgate.testing import ManualClock, disabled
from headgate.web.wsgi import RateLimitMiddleware

RULE = {"name": "api", "match": {"path": "/api/**"}, "key": "ip", "limits": "2/minute"}
ZERO = RuleCounts(*[0] * 8)


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


def asked(app, path="/api/a", count=1, **environ):
    for _ in range(count):
        list(
            app(
                {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "203.0.113.7", **environ},
                lambda *_: None,
            )
        )


def with_rules(*rules, **policy):
    store = MemoryStore(clock=ManualClock(1_000_000_020.0))
    return RateLimitMiddleware(hello, {"rules": list(rules), **policy}, store=store)


def test_a_rule_counts_what_it_admits_and_what_it_refuses():
    """A request counts for each rule that admits it, and a refused one for the rule that refuses it alone."""
    wide = {"name": "wide", "match": {"path": "/**"}, "key": "ip", "limits": ["9/minute", "99/hour"]}
    app = with_rules(RULE, wide)
    asked(app, count=3)
    asked(app, "/other")
    assert app.counts() == {"api": ZERO._replace(allowed=2, refused=1), "wide": ZERO._replace(allowed=3)}


def test_only_a_rule_that_delays_counts_a_delay():
    """Of the rules that were asked together, the others admitted the request at once."""
    slow = {**RULE, "name": "slow", "act": {"delay": {"hold": 5}}, "limits": "2000/second"}
    app = with_rules(slow, {**RULE, "limits": "99/minute"})
    asked(app, count=2)
    assert app.counts() == {"slow": ZERO._replace(allowed=1, delayed=1), "api": ZERO._replace(allowed=2)}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"act": "observe"}, {"allowed": 2, "observed": 1}),
        ({"act": {"shadow": {"status": 200, "body": "ok"}}}, {"allowed": 2, "shadowed": 1}),
        ({"act": {"delay": {"hold": 5}}, "limits": "2000/second"}, {"allowed": 1, "delayed": 2}),
        ({"exempt": {"ip": "203.0.113.0/24"}}, {"exempt": 3}),
        ({"key": {"header": "x-id"}, "missing": "skip"}, {"exempt": 3}),
        ({"key": {"header": "x-id"}, "missing": "deny"}, {"refused": 3}),
        ({"count": {"when": {"status": [500]}}}, {"allowed": 3}),
        ({"limits": "2 in flight"}, {"allowed": 3}),
    ],
)
def test_each_result_of_a_rule_is_counted(more, expected):
    """Three requests of one client, under each kind of rule."""
    app = with_rules({**RULE, **more})
    asked(app, count=3)
    assert app.counts() == {"api": ZERO._replace(**expected)}


def test_the_lists_of_a_policy_count_under_its_own_name():
    """`allow` exempts and `deny` refuses, whatever the rules are."""
    app = with_rules(RULE, allow={"ip": "203.0.113.7"}, deny={"ip": "203.0.113.8"})
    asked(app, count=2)
    asked(app, REMOTE_ADDR="203.0.113.8")
    asked(app, REMOTE_ADDR="203.0.113.9")
    assert app.counts() == {"(policy)": ZERO._replace(exempt=2, refused=1), "api": ZERO._replace(allowed=1)}


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [
        ("allow", {"degraded_allowed": 3}),
        ("deny", {"degraded_refused": 3}),
        ("local", {"degraded_allowed": 2, "degraded_refused": 1}),
    ],
)
def test_answers_without_the_store_are_counted_apart(on_error, expected):
    """While a server is away, each rule follows its `on_error`."""
    app = RateLimitMiddleware(
        hello, {"rules": [{**RULE, "on_error": on_error}]}, store="redis://127.0.0.1:1?connect_timeout=0.01"
    )
    try:
        asked(app, count=3)
        assert app.counts() == {"api": ZERO._replace(**expected)}
    finally:
        app.close()  # ends the thread that probes the server


def test_counts_survive_a_reload_and_another_store(tmp_path):
    """A changed policy and `disabled` go on with the same counts."""
    file = tmp_path / "policy.json"
    file.write_text('{"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}')
    app = RateLimitMiddleware(hello, str(file))
    asked(app, count=3)
    file.write_text(
        '{"rules": [{"name": "api", "key": "ip", "limits": "9/minute"}, {"name": "b", "key": "ip", "limits": "9/day"}]}'
    )
    assert app.reload()
    asked(app, REMOTE_ADDR="203.0.113.8")
    with disabled(app):
        asked(app)
    assert app.counts() == {"api": ZERO._replace(allowed=4, refused=1), "b": ZERO._replace(allowed=2)}


@pytest.mark.parametrize("more", [{}, {"count": {"when": {"status": [500]}}}], ids=["fast path", "steps"])
def test_sixteen_threads_lose_no_count(more):
    """16 threads through one middleware: the counts are the requests."""
    app = with_rules({**RULE, "limits": "100/minute", **more})
    threads = [threading.Thread(target=asked, args=(app, "/api/a", 50)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = app.counts()["api"]
    assert sum(counts) == counts.allowed + counts.refused == 800
