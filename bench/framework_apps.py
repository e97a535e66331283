"""Apps with a limit at each endpoint, written as each framework's users write it, beside who else does that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bench.contestant import PERIOD_WEEKS
from bench.web_apps import AMOUNTS, App, flask, words

DAYS = 7 * PERIOD_WEEKS


def framework_apps() -> list[App]:
    return [
        App("FastAPI, limited", "asgi", fastapi_limited, "FastAPI"),
        App("FastAPI, slowapi", "asgi", fastapi_slowapi, "FastAPI"),
        App("Flask, limited", "wsgi", flask_limited, "Flask"),
        App("Flask, flask-limiter", "wsgi", flask_limiter, "Flask"),
        App("Django", "wsgi", django),
        App("Django, limited", "wsgi", django_limited, "Django"),
        App("Django, django-ratelimit", "wsgi", django_ratelimit, "Django", silent=True),
        App("aiohttp", "aiohttp", aiohttp),
        App("aiohttp, limited", "aiohttp", aiohttp_limited, "aiohttp"),
    ]


def fastapi_limited() -> Any:
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse

    from headgate.web.fastapi import RateLimits, limited

    app = FastAPI(openapi_url=None)
    RateLimits(app)
    for path, amount in AMOUNTS.items():

        @app.get(path)
        @limited(words(amount))
        async def endpoint() -> JSONResponse:
            return JSONResponse({})

    return app


def fastapi_slowapi() -> Any:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from slowapi.util import get_remote_address

    limiter = Limiter(key_func=get_remote_address, headers_enabled=True)
    app = FastAPI(openapi_url=None)
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    for path, amount in AMOUNTS.items():

        async def endpoint(request: Request) -> JSONResponse:
            return JSONResponse({})

        endpoint.__name__ = path.strip("/").replace("/", "_")  # by which it keeps its counts
        endpoint.__annotations__ = {"request": Request, "return": JSONResponse}
        app.get(path)(limiter.limit(f"{amount} per {DAYS} days")(endpoint))
    return app


def flask_limited() -> Any:
    from headgate.web.flask import RateLimits, limited

    return flask(lambda endpoint, amount: limited(words(amount))(endpoint), RateLimits)


def flask_limiter() -> Any:
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    limiter = Limiter(get_remote_address, storage_uri="memory://", headers_enabled=True)

    def guard(endpoint: Any, amount: int) -> Any:
        endpoint.__name__ = f"endpoint_{amount}"  # by which it keeps its counts
        return limiter.limit(f"{amount} per {DAYS} days")(endpoint)

    return flask(guard, limiter.init_app)


def django(
    guard: Callable[[Any, int], Any] = lambda view, amount: view, middleware: tuple[str, ...] = (), **more: Any
) -> Any:
    """One app a process: Django's settings are the process's."""
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path as route

    urls: Any = ModuleType("bench_urls")
    sys.modules["bench_urls"] = urls
    settings.configure(
        ALLOWED_HOSTS=["*"], SECRET_KEY="bench", ROOT_URLCONF="bench_urls", MIDDLEWARE=list(middleware),
        LOGGING_CONFIG=None, **more,
    )  # fmt: skip

    def view_of(amount: int) -> Any:
        def view(request: Any) -> Any:
            return HttpResponse(b"{}", content_type="application/json")

        view.__name__ = view.__qualname__ = f"view_{amount}"
        return guard(view, amount)

    app = get_wsgi_application()
    urls.urlpatterns = [route(path.strip("/"), view_of(amount)) for path, amount in AMOUNTS.items()]
    urls.handler403 = too_many
    return app


def too_many(request: Any, exception: Any) -> Any:
    """How django-ratelimit's documentation turns its 403 into a 429."""
    from django.http import HttpResponse

    return HttpResponse(b"{}", status=429)


def django_limited() -> Any:
    def guard(view: Any, amount: int) -> Any:
        from headgate.web.django import limited

        return limited(words(amount))(view)

    return django(guard, ("headgate.web.django.RateLimitMiddleware",), HEADGATE={})


def django_ratelimit() -> Any:
    def guard(view: Any, amount: int) -> Any:
        from django_ratelimit.decorators import ratelimit

        return ratelimit(key="ip", rate=f"{amount}/{DAYS}d")(view)

    caches = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    return django(guard, CACHES=caches, SILENCED_SYSTEM_CHECKS=["django_ratelimit.E003", "django_ratelimit.W001"])


def aiohttp(guard: Callable[[Any, int], Any] = lambda handler, amount: handler, make: Any = None) -> Any:
    from aiohttp import web

    app = web.Application()
    if make is not None:
        make(app)
    for path, amount in AMOUNTS.items():

        async def handler(request: Any) -> Any:
            return web.Response(body=b"{}", content_type="application/json")

        app.router.add_get(path, guard(handler, amount))
    return app


def aiohttp_limited() -> Any:
    from headgate.web.aiohttp import RateLimits, limited

    return aiohttp(lambda handler, amount: limited(words(amount))(handler), RateLimits)


def main() -> None:
    """`python -m bench.framework_apps PORT`: aiohttp's own server, for the app that `BENCH_APP` names."""
    from aiohttp import web

    from bench.web_apps import app
    from bench.web_load import HOST

    web.run_app(app, host=HOST, port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
