"""Starlette: a policy in front of the app, and limits at its endpoints.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(request): ...
"""
# Annotations are real here, not strings: FastAPI reads those of `Limit.__call__`, which it cannot look up by name.

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, Unpack

from headgate.wording import requiring

with requiring("headgate.web.starlette", "starlette"):
    from starlette.concurrency import run_in_threadpool
    from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
    from starlette.requests import HTTPConnection, Request
    from starlette.websockets import WebSocket


from headgate.errors import HeadgateError, InvalidCall, RateLimited
from headgate.policy.outcome import PASS
from headgate.policy.steps import run_awaiting
from headgate.web import asgi
from headgate.web.asgi import REQUEST_LIMITS, hold
from headgate.web.callables import asking_for, called, mark_of, misplaced, name_after, note_limited
from headgate.web.endpoint import EndpointLimit
from headgate.web.request_limits import Denial, RequestLimits, Ruled
from headgate.web.runtime import Options, PolicyGiven
from headgate.web.starlette_refusals import (
    RateLimitExceeded,
    accepted,
    answer_rate_limited,
    refusal_of,
    send_refusal,
    told_in,
)
from headgate.web.starlette_routes import Known, Place, as_included, endpoints_of, place_of, routes_in
from headgate.web.unreached import router_behind

__all__ = ["Limit", "RateLimitExceeded", "RateLimitMiddleware", "RateLimits", "exempt", "limited", "send_refusal"]

LIMITS: Final = "__headgate_limits__"
"""On an endpoint that `limited` gave: itself, what is inside, and its limits. Decorators around it copy this, and
subclasses inherit it: only by itself can it be told whether it is the one."""
EXEMPT: Final = "__headgate_exempt__"
CONNECTION: Final = "headgate_connection"
"""The parameter by which FastAPI hands over the request where the endpoint does not ask for it."""
ENTERED: Final = "headgate_entered"
"""In the scope: how many decisions the endpoint has asked for so far."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """The ASGI one, for apps whose endpoints have limits of their own; the policy may be left out."""

    endpoints = True

    def __init__(self, app: asgi.App, policy: PolicyGiven | None = None, **options: Unpack[Options]) -> None:
        super().__init__(app, policy, **options)
        self.routes_of: Callable[[], Any] = lambda: getattr(router_behind(self.app), "routes", ())
        self.runtime.check = self._check

    async def _other(self, kind: str, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Where a server says that it starts, the app does not start with limits that nobody would ask."""
        if kind == "lifespan":
            try:
                self._check()
            except InvalidCall as wrong:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(wrong)})
                raise
        await super()._other(kind, scope, receive, send)

    def _check(self) -> None:
        name = misplaced(each.endpoint for each in endpoints_of(self.routes_of()))
        if name is not None:
            raise InvalidCall(
                f"@limited stands above the route's decorator at {name}: the route has the endpoint without its limit. "
                "In the code, swap the two lines"
            )


class RateLimits:
    """Everything in one line, around the whole app: errors that it does not handle get header fields too.

    `default` are the limits of each endpoint that has none of its own. The policy is asked before any other middleware:
    where its rules need what one of them finds out (a user, a session), add `RateLimitMiddleware` after that one.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        if getattr(app, "middleware_stack", None) is not None:
            raise InvalidCall("the app runs already; RateLimits(app) goes where the app is made")
        self._outside = RateLimitMiddleware(_nothing, policy, **options)
        self.runtime = self._outside.runtime
        self.runtime.routes = lambda: routes_in(app)
        self._outside.routes_of = lambda: app.routes
        self._app = app
        self._build = app.build_middleware_stack
        self._default = None if default is None else Limit(default, key=key)
        app.build_middleware_stack = self._surround

    def _surround(self) -> asgi.App:
        handlers = self._app.exception_handlers
        if HeadgateError not in handlers:  # the app's own go first
            handlers.setdefault(RateLimited, answer_rate_limited)
        inside: asgi.App = self._build()

        async def cover_first(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
            if scope["type"] != "lifespan":  # while it starts up an app may still add routes
                self._cover()
                self._outside.app = inside
            await inside(scope, receive, send)

        self._outside.app = inside if self._default is None else cover_first
        return self._outside

    def _cover(self) -> None:
        """Put the default limits in front of every endpoint; a route that is in two places is one."""
        for route in {id(each): each for each in endpoints_of(self._app.routes)}.values():
            route.handle = functools.partial(self._handle, route, route.handle)

    async def _handle(self, route: Any, handle: asgi.App, scope: asgi.Scope, *way: Any) -> None:  # noqa: ANN401
        """An endpoint, behind the default limits where it has none; a mounted app may have other default limits."""
        connection = _connection(scope, *way)
        methods = getattr(route, "methods", None) or (scope.get("method"),)  # others get a 405
        if scope.get("method") in methods and request_limits_of(connection).runtime is self.runtime:
            route = as_included(route, scope)
            if self._default and not self.limits_at(route) and not mark_of(route.endpoint, EXEMPT):
                await enter(connection, (self._default,))
        await handle(scope, *way)

    def limits_at(self, route: Any) -> "tuple[Limit, ...]":  # noqa: ANN401
        """The limits of an endpoint's own."""
        _, _, limits = mark_of(route.endpoint, LIMITS) or (None, None, ())
        return limits


async def _nothing(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """Stands for the app until it is built."""


def _connection(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> HTTPConnection:
    return (Request if scope["type"] == "http" else WebSocket)(scope, receive, send)


class Limit:
    """A limit as a dependency: `Depends(Limit("10/minute"))`. Any field of a policy's rule can be given by name.

    Functions (`limits`, `key`, `cost`, `exempt`) take the request. `messages` counts what a websocket receives.
    """

    def __init__(self, limits: Any, *, key: Any = "ip", messages: bool = False, **rule: Any) -> None:  # noqa: ANN401
        if messages:
            rule["match"] = {"method": "MESSAGE", **rule.get("match", {})}
        self.limit = EndpointLimit(limits, {"key": key, **rule})
        self.messages = messages

    async def __call__(self, connection: HTTPConnection) -> None:
        """Let the request pass, or raise `RateLimitExceeded`."""
        if not mark_of(connection.scope.get("endpoint"), EXEMPT):
            await enter(connection, (self,))


def request_limits_of(connection: HTTPConnection) -> RequestLimits[bytes]:
    """What was decided about this request so far."""
    request_limits: RequestLimits[bytes] | None = connection.scope.get(REQUEST_LIMITS)
    if request_limits is None:
        raise HeadgateError(
            "limits at endpoints need RateLimits(app), or app.add_middleware(RateLimitMiddleware) of "
            "headgate.web.starlette: there the store is chosen, and the response is told what is left"
        )
    return request_limits


async def enter(connection: HTTPConnection, limits: tuple[Limit, ...], endpoint: Any = None) -> None:  # noqa: ANN401
    """Rule on a request that has come to its endpoint; hold it where a rule says so."""
    more = enter_at_once(connection, limits, place_of(connection.scope, endpoint))
    if more is not None:
        await more


def enter_at_once(connection: HTTPConnection, limits: tuple[Limit, ...], place: Place) -> Awaitable[None] | None:
    """The same, in most cases; in the others there is more to await."""
    request_limits, scope = request_limits_of(connection), connection.scope
    asked, messages = _split(limits)
    if messages:
        request_limits.messages += messages
        request_limits.route, request_limits.request = f"{place.template}/messages {place.name} messages", connection
    if not asked:
        return None
    times = scope[ENTERED] = scope.get(ENTERED, 0) + 1
    route = place.route if times == 1 else f"{place.template}/{times} {place.name} {times}"  # other counts each time
    peer = scope.get("client")
    fast_path = request_limits.runtime.fast_path_at(asked, route, scope.get("method", "WEBSOCKET"))
    found = request_limits.ask(fast_path, peer[0] if peer else None)
    return None if found is not None and found[1] is PASS else _enter(connection, request_limits, asked, route, found)


async def _enter(
    connection: HTTPConnection,
    request_limits: RequestLimits[bytes],
    limits: tuple[EndpointLimit, ...],
    route: str,
    found: Ruled[bytes] | None,
) -> None:
    if found is None:
        view = request_limits.runtime.view(connection.scope)
        view.route, view.request, view.path = route, connection, request_limits.path
        found = await run_awaiting(request_limits.enter(view, limits))
    responder, outcome = found
    if outcome.kind == "pass":
        return await hold(request_limits, outcome.delay_us) if outcome.delay_us else None
    await run_awaiting(request_limits.release())
    answer = responder.refuse(outcome, accepted(connection))
    if outcome.kind == "deny":
        request_limits.denial = Denial(responder, told_in(answer))
    raise refusal_of(connection, answer, outcome.decision)


@functools.lru_cache(maxsize=4096)
def _split(limits: tuple[Limit, ...]) -> tuple[tuple[EndpointLimit, ...], tuple[EndpointLimit, ...]]:
    """Those of requests, and those of messages."""
    return (
        tuple(each.limit for each in limits if not each.messages),
        tuple(each.limit for each in limits if each.messages),
    )


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Endpoint], Endpoint]:  # noqa: ANN401
    """A limit as a decorator of an endpoint, below the route's; takes what `Limit` takes.

    The endpoint needs no parameter for it. Several on one endpoint are one decision: all are charged, or none is.
    """
    limit = Limit(limits, key=key, **rule)

    def decorate(endpoint: Endpoint) -> Endpoint:
        decorated, original, inside = getattr(endpoint, LIMITS, (None, None, ()))
        if decorated is not endpoint:
            original, inside = endpoint, ()
        every = (limit, *inside)
        wrapped: Endpoint = _wrap(original, every)
        setattr(wrapped, LIMITS, (wrapped, original, every))
        note_limited(endpoint, wrapped)
        return wrapped

    return decorate


def exempt(endpoint: Endpoint) -> Endpoint:
    """An endpoint that default limits, and those of its router, leave alone."""
    setattr(getattr(endpoint, "__func__", endpoint), EXEMPT, True)
    return endpoint


def _wrap(endpoint: Any, limits: tuple[Limit, ...]) -> Any:  # noqa: ANN401
    if inspect.isclass(endpoint):
        return _limited_class(endpoint, limits)
    call = called(endpoint)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidCall("an endpoint that yields has begun its response when it runs; use Depends(limit(...))")
    if call is not endpoint and tuple(inspect.signature(call).parameters) == ("scope", "receive", "send"):
        return _LimitedApp(endpoint, limits)
    return _limited(endpoint, call, limits)


def _limited(
    endpoint: Callable[..., Any], call: Callable[..., Any], limits: tuple[Limit, ...]
) -> Callable[..., Awaitable[Any]]:
    awaited = inspect.iscoroutinefunction(call)
    known: Known = {}

    async def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        connection = kwargs.pop(CONNECTION, None)
        if connection is None:
            connection = next((each for each in (*args, *kwargs.values()) if isinstance(each, HTTPConnection)), None)
        if connection is None:
            raise HeadgateError("a limited endpoint was called without a request; its __wrapped__ has no limits")
        more = enter_at_once(connection, limits, place_of(connection.scope, endpoint, known))
        if more is not None:
            await more
        return await (endpoint(*args, **kwargs) if awaited else run_in_threadpool(endpoint, *args, **kwargs))

    functools.update_wrapper(wrapper, endpoint)
    name_after(endpoint, wrapper)
    wrapper.__signature__ = asking_for(HTTPConnection, CONNECTION, call)  # type: ignore[attr-defined]
    return wrapper


class _LimitedApp:
    """An ASGI app behind limits, which Starlette takes as an endpoint too."""

    def __init__(self, app: asgi.App, limits: tuple[Limit, ...]) -> None:
        name_after(app, self)
        self._app, self._limits = app, limits

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await enter(_connection(scope, receive, send), self._limits)
        await self._app(scope, receive, send)


def _limited_class(endpoint: Any, limits: tuple[Limit, ...]) -> type:  # noqa: ANN401
    if not issubclass(endpoint, HTTPEndpoint | WebSocketEndpoint):
        raise InvalidCall(f"a limit is for functions and for Starlette's endpoint classes; got {endpoint!r}")

    async def dispatch(self: Any) -> None:  # noqa: ANN401
        await enter(_connection(self.scope, self.receive, self.send), limits, endpoint)
        await endpoint.dispatch(self)

    names = {"dispatch": dispatch, "__doc__": endpoint.__doc__, "__module__": endpoint.__module__}
    return type(endpoint.__name__, (endpoint,), {**names, "__qualname__": endpoint.__qualname__})
