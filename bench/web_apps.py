"""The apps behind HTTP: bare, behind headgate, and behind those who else limit them, each as its documentation shows.

Each has two paths: `/api/users`, with a limit that no run uses up, and `/small`, with the limit of the proof. A server
imports `app`, which is the one that `BENCH_APP` names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from bench.contestant import LARGE, PERIOD_WEEKS, SMALL

Wire = Literal["asgi", "wsgi", "aiohttp"]
OPEN, USED_UP = "/api/users", "/small"
NEW = "/users/{}"
"""A path with a number: a policy has a rule for all of them, and a run may ask for each of them once."""
VARIABLE, DIRECTORY = "BENCH_APP", "BENCH_DIRECTORY"
AMOUNTS = {OPEN: LARGE, USED_UP: SMALL}
SAYS = (b"ratelimit", b"x-ratelimit-limit", b"x-ratelimit-remaining", b"ratelimit-remaining")
"""Header fields of which a limited app sends at least one, unless it says nothing at all."""
CLASSED = b"x-classed"
"""A header field with which an app tells that its request has a class: a load shedder was asked."""


logging.getLogger("headgate").setLevel(logging.ERROR)  # hints: one client and one worker are what is measured


class App(NamedTuple):
    name: str
    wire: Wire
    make: Callable[[], Any]
    bare: str = ""
    """The same app without a limiter; empty for those that are one."""
    silent: bool = False
    """It sends no header fields with a yes."""
    fast: bool = False
    """On the server with its native parser and loop, and so is its bare twin."""
    limits: bool = True
    """It has the limits of both paths; False for one that only sheds load."""
    sheds: bool | None = None
    """Whether each request has a permit of a load shedder, for apps that send a field about it."""


def apps() -> dict[str, App]:
    limited = [
        App("ASGI, headgate", "asgi", lambda: ours_asgi(plain_asgi()), "ASGI"),
        App("Starlette, headgate", "asgi", lambda: ours_asgi(starlette()), "Starlette"),
        App("Starlette, headgate shared", "asgi", lambda: ours_asgi(starlette(), shared()), "Starlette"),
        App("Starlette, headgate, uvloop", "asgi", lambda: ours_asgi(starlette()), "Starlette", fast=True),
        App("Starlette, slowapi", "asgi", slowapi, "Starlette"),
        App("FastAPI, headgate", "asgi", lambda: ours_asgi(fastapi()), "FastAPI"),
        App("FastAPI, fastapi-limiter", "asgi", fastapi_limiter, "FastAPI", silent=True),
        App("WSGI, headgate", "wsgi", lambda: ours_wsgi(plain_wsgi), "WSGI"),
        App("WSGI, headgate shared", "wsgi", lambda: ours_wsgi(plain_wsgi, shared()), "WSGI"),
        App("Flask, headgate", "wsgi", lambda: ours_wsgi(flask()), "Flask"),
        App("Flask, throttled-py", "wsgi", throttled, "Flask"),
    ]
    bare = [
        App("ASGI", "asgi", plain_asgi),
        App("Starlette", "asgi", starlette),
        App("FastAPI", "asgi", fastapi),
        App("WSGI", "wsgi", lambda: plain_wsgi),
        App("Flask", "wsgi", flask),
    ]
    from bench.framework_apps import framework_apps
    from bench.observe_apps import observed_apps
    from bench.shed_apps import shed_apps

    return {each.name: each for each in (*bare, *limited, *framework_apps(), *shed_apps(), *observed_apps())}


def policy() -> dict[str, Any]:
    """Rules by the client's address; one applies to a request."""
    rules = [
        {"name": path.strip("/").replace("/", "-"), "match": {"path": path}, "key": "ip", "limits": words(amount)}
        for path, amount in AMOUNTS.items()
    ]
    rules.append({"name": "users", "match": {"path": NEW.format("{id}")}, "key": "ip", "limits": words(LARGE)})
    return {"rules": rules}


def words(amount: int) -> str:
    return f"{amount}/{PERIOD_WEEKS} weeks"


def shared() -> str:
    return f"shared://{os.environ[DIRECTORY]}/web?max_keys=1000"


def ours_asgi(app: Any, store: str | None = None) -> Any:
    from headgate.web.asgi import RateLimitMiddleware

    return RateLimitMiddleware(app, policy(), store=store)


def ours_wsgi(app: Any, store: str | None = None) -> Any:
    from headgate.web.wsgi import RateLimitMiddleware

    return RateLimitMiddleware(app, policy(), store=store)


def plain_asgi() -> Any:
    """What Starlette sends for an empty JSONResponse, without Starlette."""
    body = b"{}"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"2"), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def plain_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2"), ("Content-Type", "application/json")])
    return [b"{}"]


def starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Route

    return Starlette(routes=[Route(path, _empty_response()) for path in AMOUNTS])


def _empty_response() -> Any:
    from starlette.responses import JSONResponse

    async def endpoint(request: Any) -> Any:
        return JSONResponse({})

    return endpoint


def slowapi() -> Any:
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from slowapi.util import get_remote_address
    from starlette.applications import Starlette
    from starlette.routing import Route

    limiter = Limiter(key_func=get_remote_address, headers_enabled=True)

    def limited(path: str, amount: int) -> Any:
        endpoint = _empty_response()
        endpoint.__name__ = path.strip("/").replace("/", "_")  # by which it keeps its counts
        return Route(path, limiter.limit(f"{amount} per {7 * PERIOD_WEEKS} days")(endpoint))

    app = Starlette(routes=[limited(path, amount) for path, amount in AMOUNTS.items()])
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    return app


def fastapi(guards: Callable[[int], list[Any]] = lambda amount: []) -> Any:
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse

    app = FastAPI(openapi_url=None)
    for path, amount in AMOUNTS.items():

        @app.get(path, dependencies=guards(amount))
        async def endpoint() -> JSONResponse:
            return JSONResponse({})

    return app


def fastapi_limiter() -> Any:
    """Its limiter is pyrate-limiter's, with the algorithm that is cheapest there."""
    import pyrate_limiter
    from fastapi import Depends
    from fastapi_limiter.depends import RateLimiter

    from bench.rivals import _pyrate_bucket

    def guards(amount: int) -> list[Any]:
        return [Depends(RateLimiter(limiter=pyrate_limiter.Limiter(_pyrate_bucket("TokenBucket", amount))))]

    return fastapi(guards)


def flask(guard: Callable[[Any, int], Any] = lambda endpoint, amount: endpoint, make: Any = None) -> Any:
    from flask import Flask

    app = Flask("bench")
    if make is not None:
        make(app)
    for path, amount in AMOUNTS.items():

        def endpoint() -> Any:
            return app.response_class("{}", mimetype="application/json")

        app.add_url_rule(path, path, guard(endpoint, amount))
    return app


def throttled() -> Any:
    from datetime import timedelta

    from throttled import per_duration
    from throttled.contrib.flask import Limiter, get_remote_address

    def quota(amount: int) -> Any:
        return per_duration(timedelta(weeks=PERIOD_WEEKS), amount)

    limiter = Limiter(quota(LARGE), key_func=get_remote_address)
    return flask(lambda endpoint, amount: limiter.limit(quota(amount))(endpoint), limiter.init_app)


if VARIABLE in os.environ:
    app = apps()[os.environ[VARIABLE]].make()
