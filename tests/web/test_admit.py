"""One way to admit a request: every edge has the fast path, behind trusted proxies too, and is held the same way."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from aiohttp import web
from django.test import Client
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from headgate.policy import Proxies, RequestView
from headgate.policy.compiled import CompiledPolicy
from headgate.testing import disabled, frozen, reset_all
from headgate.web.aiohttp import RateLimits as AiohttpLimits
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.clients import LONGEST, Clients
from headgate.web.django import rate_limits
from headgate.web.endpoint import EndpointLimit
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.options import Options, WebOptions
from headgate.web.request_limits import limits_of
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.adapters.bare import AsgiSuite, WsgiSuite
from tests.support.adapters.django import DjangoAsyncSuite
from tests.support.django_site import site
from tests.support.edges import plain
from tests.support.inside import runtime_of
from tests.web.test_edges import EDGES

pytestmark = pytest.mark.engineless

PROXY, CLIENT = "203.0.113.9", "198.51.100.1"
ONE = {"rules": [{"key": "ip", "limits": "1/minute"}]}


def looked_at(*given: Any) -> Any:
    raise AssertionError("a request has taken steps")


@pytest.mark.parametrize("edge", [AsgiSuite, WsgiSuite, *(edge for edge in EDGES if edge is not DjangoAsyncSuite)])
def test_every_edge_decides_by_the_fast_path_behind_a_trusted_proxy(edge, monkeypatch):
    """No request is looked at by the steps of a policy, be it admitted or refused; under ASGI Django's are."""
    monkeypatch.setattr(CompiledPolicy, "before", looked_at)
    for where in edge.places:
        with edge().limiting(where, {"limits": "1/minute"}, trusted_proxies=[edge.client]) as site:
            assert site.codes(times=2, x_forwarded_for=CLIENT) == [200, 429], where


def test_grpc_decides_by_the_fast_path_behind_a_trusted_proxy(monkeypatch):
    """The same of calls, whose addresses are in their metadata."""
    grpc_servers = pytest.importorskip("tests.support.grpc_servers")
    monkeypatch.setattr(CompiledPolicy, "before", looked_at)
    with grpc_servers.serving(default="1/minute", trusted_proxies=["127.0.0.1"]) as server:
        told = server.codes(2, "Unary", b"hi", metadata=[("x-forwarded-for", CLIENT)])
    assert told == ["OK", "RESOURCE_EXHAUSTED"]


ADDRESSES = st.sampled_from([PROXY, CLIENT, "10.0.0.1", "2001:db8::1", "testclient", "", None])
LINES = st.lists(
    st.sampled_from(
        ["6.6.6.6", CLIENT, "junk", "", f"6.6.6.6, {CLIENT}, 10.0.0.1", "for=10.0.0.9", "a" * LONGEST + CLIENT]
    ),
    max_size=3,
)


@given(
    ADDRESSES,
    LINES,
    st.sampled_from([
        Proxies([PROXY, "10.0.0.0/8"]), Proxies([PROXY], header="forwarded"), Proxies(hops=2), Proxies(["unix"]),
    ]),
)  # fmt: skip
def test_the_client_behind_proxies_is_the_one_that_rules_see(peer, lines, proxies):
    """Whether it was remembered or not."""
    clients = Clients(proxies, lambda request, header: request.get(header, []))
    headers = {proxies.header: lines} if lines else {}
    expected = RequestView("GET", "/", headers, peer, proxies).client
    assert [clients(headers, peer) for _ in range(2)] == [expected, expected]


def test_a_request_that_was_refused_may_be_refused_once_more():
    """An app that catches a refusal and asks another limit has the answer of that one."""
    app = Asgi(plain, ONE)
    asked = [("/a", (EndpointLimit("1/minute", {}),)), ("/b", (EndpointLimit("1/hour", {}),))]
    with frozen(app):
        for route, limit in asked:
            assert limits_of(runtime_of(app))().admit({}, "GET", route, CLIENT, limit) is True
        limits = limits_of(runtime_of(app))()
        for (route, limit), wait in zip(asked, (60, 3600), strict=True):
            assert limits.admit({}, "GET", route, CLIENT, limit) is False
            assert dict(limits.refuse(None)[1])[b"retry-after"] == b"%d" % wait
            decision = limits.refused[1].decision
            assert decision is not None and decision.retry_after == wait


def flask_limits() -> FlaskLimits:
    return FlaskLimits(Flask("shop"), ONE)


def grpc_limits() -> Any:
    pytest.importorskip("grpc")
    from headgate.web.grpc import RateLimitInterceptor

    return RateLimitInterceptor(ONE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Asgi(plain, ONE), lambda: Wsgi(lambda *given: [], ONE), lambda: StarletteLimits(Starlette(), ONE),
        flask_limits, lambda: AiohttpLimits(web.Application(), ONE), grpc_limits,
    ],
)  # fmt: skip
def test_users_hold_the_limits_themselves(make):
    """The tools for testing take them, and they have the policy; an old word says what is written now."""
    limits = make()
    with frozen(limits), disabled(limits):
        reset_all(limits)
    assert [rule.name for rule in limits.policy.rules] == ["rule-1"]
    assert limits.reload() is False
    for old in ("door", "runtime"):
        with pytest.raises(AttributeError, match=r"frozen\(limits\).*limits.policy"):
            getattr(limits, old)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        limits.colour  # noqa: B018
    limits.close()
    asyncio.run(limits.aclose())


def test_a_site_holds_its_limits_itself():
    """The same of Django's, which belong to the process."""
    with site(Client, policy=ONE):
        with frozen(rate_limits), disabled(rate_limits):
            reset_all(rate_limits)
        assert [rule.name for rule in rate_limits.policy.rules] == ["rule-1"]
        assert rate_limits.reload() is False
        for old in ("door", "runtime"):
            with pytest.raises(AttributeError, match=r"frozen\(limits\)"):
                getattr(rate_limits, old)


def test_options_are_written_once():
    """A type checker reads the options that are there."""
    assert [field.name for field in fields(WebOptions)] == list(get_type_hints(Options))
