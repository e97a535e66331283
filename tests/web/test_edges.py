"""Every edge: what all of them do, whatever the framework, by the suite that others can use."""

from __future__ import annotations

import pytest

from tests.support.adapters.aiohttp import AiohttpSuite
from tests.support.adapters.bare import AsgiSuite, WsgiSuite
from tests.support.adapters.django import DjangoAsyncSuite, DjangoSuite, DrfSuite
from tests.support.adapters.fastapi import FastApiDependencySuite, FastApiSuite
from tests.support.adapters.flask import FlaskSuite
from tests.support.adapters.starlette import StarletteMiddlewareSuite, StarletteSuite

pytestmark = pytest.mark.engineless


class TestAsgi(AsgiSuite):
    """The middleware in front of any ASGI app."""


class TestWsgi(WsgiSuite):
    """The middleware in front of any WSGI app."""


class TestStarlette(StarletteSuite):
    """`RateLimits` around Starlette."""


class TestStarletteMiddleware(StarletteMiddlewareSuite):
    """`RateLimitMiddleware` among the middleware of Starlette."""


class TestFastApi(FastApiSuite):
    """Decorators at the endpoints of FastAPI."""


class TestFastApiDependencies(FastApiDependencySuite):
    """Dependencies at the endpoints of FastAPI."""


class TestFlask(FlaskSuite):
    """The extension of Flask."""

    @pytest.mark.xfail(strict=True, reason="limits at Flask's views see every HEAD as a GET")
    def test_a_rule_that_names_head_tells_it_from_get(self):
        """A rule for HEAD counts no GET, and HEAD may have a price of its own."""
        super().test_a_rule_that_names_head_tells_it_from_get()


class TestDjango(DjangoSuite):
    """Django under WSGI."""


class TestDjangoAsync(DjangoAsyncSuite):
    """Django under ASGI."""


class TestDrf(DrfSuite):
    """Views of Django REST framework."""


class TestAiohttp(AiohttpSuite):
    """aiohttp on real sockets."""

    @pytest.mark.xfail(strict=True, reason="`exempt` above `limited` takes a handler's own limits away")
    def test_an_exempt_endpoint_keeps_its_own_limits(self):
        """`exempt` is for the limits of others."""
        super().test_an_exempt_endpoint_keeps_its_own_limits()
