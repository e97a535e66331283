"""Limits that a store cannot keep, and stores that fail: refused when a policy is read, else answered by `on_error`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headgate import Limiter, SharedStore, StoreError
from headgate.engine import NATIVE
from headgate.errors import InvalidPolicy
from headgate.stores.redis import RedisStore
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.edges import asgi, plain, responder
from tests.support.stores import Failing

needs_shared = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")
NOWHERE = "redis://127.0.0.1:1"
"""Nobody listens there."""


def written(file: Any, limits: str) -> Any:
    file.write_text(f"rules: [{{name: api, key: ip, limits: '{limits}'}}]\n")
    return file


@pytest.mark.parametrize("home", ["memory", pytest.param("shared", marks=needs_shared)])
@pytest.mark.parametrize(
    ("before", "after"),
    [("2 in flight", "30 in flight"), ("2/hour by sliding-log", "30/hour by sliding-log")],
)
def test_a_larger_limit_in_a_followed_file_is_served(tmp_path, home, before, after):
    """More in flight and a longer log: no request fails, and what was counted before still counts."""
    file = written(tmp_path / "policy.yaml", before)
    store = f"shared://{tmp_path}/store" if home == "shared" else None
    app = RateLimitMiddleware(plain, file, store=store)
    assert asgi(app).status == 200
    written(file, after)
    assert app.reload() is True
    statuses = [asgi(app).status for _ in range(31)]
    assert statuses == ([200] * 31 if "flight" in after else [200] * 29 + [429] * 2)


@pytest.mark.parametrize("order", [("free", "pro"), ("pro", "free")])
@pytest.mark.parametrize("limit", ["{} in flight", "{}/hour by sliding-log"])
def test_plans_of_any_size_come_in_any_order(order, limit):
    """A free user before a pro user, or after: each gets the numbers of the plan."""
    judged = responder({"limits": {"default": limit.format(2), "pro": limit.format(20)}, "key": "user"})
    passed = {name: judged.kinds(25, user=name, plan=name).count("pass") for name in order}
    assert passed == {"free": 2, "pro": 20}


@needs_shared
def test_a_limit_that_its_store_has_no_room_for_is_refused_when_it_is_read(tmp_path, caplog):
    """At the start by an error that names the rule; in a followed file by a line in the log, and the old one stays."""
    store = f"shared://{tmp_path}/store"
    with pytest.raises(InvalidPolicy, match="rule api: no room for 9000/week by sliding-log as api"):
        RateLimitMiddleware(plain, written(tmp_path / "large.yaml", "9000/week by sliding-log"), store=store)
    file = written(tmp_path / "policy.yaml", "2/hour")
    app = RateLimitMiddleware(plain, file, store=store)
    written(file, "9000/week by sliding-log")
    assert app.reload() is False
    assert "rule api: no room for 9000/week by sliding-log as api" in caplog.text
    assert [asgi(app).status for _ in range(3)] == [200, 200, 429]


@needs_shared
@pytest.mark.parametrize("middleware", [RateLimitMiddleware, Wsgi])
def test_a_policy_takes_the_room_of_its_own_limits_only(tmp_path, middleware):
    """A policy fits in a store in which a limiter of the same limits fits, and takes as many bytes of it."""
    options = "max_keys=1000000&max_bytes=25000000"
    with Limiter("2/minute", store=f"shared://{tmp_path}/first?{options}") as limiter:
        needed = limiter.store.bytes()
    store = SharedStore(f"{tmp_path}/second", max_keys=1_000_000, max_bytes=25_000_000)
    middleware(plain, {"rules": [{"key": "ip", "limits": "2/minute"}]}, store=store)
    assert store.bytes() == needed


@pytest.mark.parametrize("fault", [KeyError("x"), MemoryError(), OSError("disk"), RuntimeError("bug"), StoreError("s")])
@pytest.mark.parametrize(
    ("on_error", "statuses"),
    [("local", [200, 200, 429]), ("allow", [200] * 3), ("deny", [503] * 3), ("raise", [503] * 3)],
)
def test_no_fault_of_a_store_is_a_fault_of_the_request(fault, on_error, statuses, caplog):
    """Whatever a store raises: each rule follows its on_error, one line is in the log, and it ends with the fault."""
    store = Failing(fault)
    app = RateLimitMiddleware(plain, {"rules": [{"key": "ip", "limits": "2/hour", "on_error": on_error}]}, store=store)
    with caplog.at_level(logging.WARNING, "headgate.policy"):
        assert [asgi(app).status for _ in range(3)] == statuses
    assert len([record for record in caplog.records if "each rule follows its on_error" in record.message]) == 1
    store.fault = None
    assert [asgi(app).status for _ in range(3)] == [200, 200, 429]


def test_a_dry_run_never_fails_a_request():
    """A rule that only observes lets every request pass, also where its store fails."""
    judged = responder({"act": "observe", "on_error": "deny", "store": "far"}, at={"far": Failing(KeyError("x"))})
    assert judged.kinds(3) == ["pass"] * 3


def test_limits_made_for_each_customer_are_counted_for_each():
    """Two thousand limits that a function makes are budgets in one table; customer 2,000 is refused like customer 1."""
    judged = responder({"key": "user", "limits": lambda view: f"2/minute as c{view.user}"})
    assert {tuple(judged.kinds(3, user=str(number))) for number in range(2_000)} == {("pass", "pass", "deny")}


@pytest.mark.parametrize(("on_error", "kinds"), [("local", {("deny",) * 3}), ("allow", {("pass",) * 3})])
def test_where_nothing_can_count_nothing_passes(on_error, kinds):
    """More periods than a store has tables for, and than memory has: refused, unless the rule says to let it pass."""
    judged = responder({"key": "user", "limits": lambda view: f"2/{view.user} s", "on_error": on_error})
    counted = {tuple(judged.kinds(3, user=str(number))) for number in range(1, 250)}
    assert counted == {("pass", "pass", "deny")}
    for number in range(250, 520):
        judged.kinds(3, user=str(number))
    assert {tuple(judged.kinds(3, user=str(number))) for number in range(520, 530)} == kinds


def test_a_store_that_had_no_room_for_a_moment_is_asked_again():
    """Limits that could not be bound at first work as soon as the store does."""
    store = Failing(StoreError("full"))
    bind = store.bind

    def binding(namespace: str, limits: Any) -> Any:
        if store.fault is not None and limits[0].name != "headgate":
            raise store.fault
        return bind(namespace, limits)

    store.bind = binding  # type: ignore[method-assign]
    judged = responder({"store": "far", "on_error": "deny"}, at={"far": store})
    assert judged.kinds(2) == ["deny", "deny"]
    store.fault = None
    assert judged.kinds(3) == ["pass", "pass", "deny"]


def test_without_its_server_each_node_lets_its_share_pass():
    """`nodes` of the store divide the limits of a policy as they divide those of a limiter."""
    store = RedisStore(NOWHERE, nodes=4)
    judged = responder({"store": "far", "limits": "100/hour"}, at={"far": store})
    assert judged.kinds(100).count("pass") == 25
    store.close()


@needs_shared
def test_without_its_server_the_store_named_for_that_counts(tmp_path):
    """`local` of the store is where a policy counts meanwhile: here one budget for two processes of a host."""
    stores = [RedisStore(NOWHERE, local=f"shared://{tmp_path}/local") for _ in range(2)]
    responders = [responder({"store": "far", "limits": "10/hour"}, at={"far": store}) for store in stores]
    assert sum(judged.kinds(8).count("pass") for judged in responders) == 10
    for store in stores:
        store.close()


@pytest.mark.parametrize("on_error", ["allow", "deny", "local", "raise"])
def test_a_store_that_stops_before_a_refusal_is_charged_refuses_all_the_same(on_error, caplog):
    """The refusal was decided; only its own charge is lost, and the log tells so."""
    rule = {"name": "api", "key": "ip", "limits": "1/minute", "count": {"refused": True}, "on_error": on_error}
    store = Failing(answers=1)
    app = RateLimitMiddleware(plain, {"rules": [rule]}, store=store)
    assert asgi(app).status == 200
    store.fault = StoreError("the cable was cut")
    refusal = asgi(app)
    assert (refusal.status, dict(refusal.headers)["retry-after"]) == (429, "60")
    assert "a refused request could not be charged: the cable was cut" in caplog.messages
