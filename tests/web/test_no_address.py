"""Requests without an address, as from a unix socket: one budget for all of them at every edge."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

import pytest

from headgate.web.asgi import RateLimitMiddleware as Asgi
from tests.support.edges import plain, responder

pytestmark = pytest.mark.engineless

RULE = {"key": "ip", "limits": "2/hour"}


@pytest.mark.parametrize("kind", ["threads", "loop"])
@pytest.mark.parametrize("given", [{"policy": {"rules": [RULE]}}, {"default": "2/hour"}])
def test_callers_of_grpc_on_a_unix_socket_are_one(kind, given):
    """Calls without an address share one budget, in the policy and by default."""
    grpc_servers = pytest.importorskip("tests.support.grpc_servers")
    with (
        tempfile.TemporaryDirectory() as short,
        grpc_servers.serving(kind, at=f"unix:{os.path.join(short, 's')}", **given) as server,
    ):
        assert [server.ask().code.name for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize("key", ["user", {"header": "x-key"}, {"claim": "sub"}, ["user", "ip"], lambda view: None])
def test_a_part_that_is_missing_beside_an_address_that_is_missing_is_counted(key):
    """The request is counted by default, in a budget that nobody's value can be."""
    assert responder({"key": key}).kinds(3, peer=None) == ["pass", "pass", "deny"]
    assert responder({"key": key, "missing": "deny"}).ask(peer=None).status == (401 if isinstance(key, dict) else 403)
    assert responder({"key": key, "missing": "skip"}).kinds(3, peer=None) == ["pass"] * 3


def test_no_value_looks_like_nobody():
    """A user whose name looks like the mark of nobody has a budget of its own."""
    judged = responder({"key": "user"})
    assert judged.kinds(3, peer=None) == ["pass", "pass", "deny"]
    assert [judged.ask(user=name).kind for name in ("\\m", "\\\\m", "")] == ["pass"] * 3


@pytest.mark.parametrize(
    ("trusted", "advice"),
    [
        ((), "trusted_proxies=['unix']"),
        (["10.0.0.0/8"], "add 'unix' to trusted_proxies"),
        (["unix"], "x-forwarded-for"),
    ],
)
def test_the_log_says_once_what_to_set(trusted, advice, caplog, monkeypatch):
    """The first of 1100 requests without an address is warned of, with the setting that helps."""
    monkeypatch.setattr("headgate.policy.no_address._said", False)
    app = Asgi(plain, {"rules": [RULE]}, trusted_proxies=trusted)
    with caplog.at_level(logging.WARNING, "headgate"):
        for _ in range(1100):
            asgi_once(app)
    [said] = [each.getMessage() for each in caplog.records]
    assert "without an address" in said and "counted as one client" in said and advice in said


def test_the_log_says_nothing_where_no_rule_needs_an_address(caplog, monkeypatch):
    """A rule for everyone is not warned of."""
    monkeypatch.setattr("headgate.policy.no_address._said", False)
    app = Asgi(plain, {"rules": [{**RULE, "key": "everyone"}]})
    with caplog.at_level(logging.WARNING, "headgate"):
        asgi_once(app)
    assert not caplog.records


def asgi_once(app: Any) -> None:
    """One request without an address, in no event loop: nothing is awaited there."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}
    call = app(scope, _never, _nowhere)
    with pytest.raises(StopIteration):
        call.send(None)


async def _never() -> Any:
    raise AssertionError


async def _nowhere(message: Any) -> None:
    """Nobody listens."""
