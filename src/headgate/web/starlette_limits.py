"""Limits at Starlette's and FastAPI's endpoints: as dependencies, and as decorators."""
# Annotations are real here, not strings: FastAPI reads those of `Limit.__call__`, which it cannot look up by name.

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.requests import HTTPConnection, Request
from starlette.websockets import WebSocket

from headgate.errors import HeadgateError, InvalidCall
from headgate.steps import Steps, run_awaiting
from headgate.web import asgi
from headgate.web.asgi import REQUEST_LIMITS
from headgate.web.asgi_requests import Scope
from headgate.web.asgi_sending import Receive, Send
from headgate.web.callables import asking_for, called, full_name, mark_of, name_after, note_limited, refuse_bare
from headgate.web.endpoint import EndpointLimit
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits
from headgate.web.starlette_refusals import accepted, refusal_of
from headgate.web.starlette_routes import Known, Place, place_of, route_before, route_named

LIMITS: Final = "__headgate_limits__"
"""The attribute of a limited endpoint: the endpoint itself, the original, and the limits. Other decorators copy it and
subclasses inherit it, so a reader compares the first with the endpoint."""
EXEMPT: Final = "__headgate_exempt__"
CONNECTION: Final = "headgate_connection"
"""The parameter in which FastAPI passes the request to an endpoint that has no parameter for it."""
ENTERED: Final = "headgate_entered"
"""The key in the scope of the number of decisions at the endpoint so far."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def connection_of(scope: Scope, receive: Receive, send: Send) -> HTTPConnection:
    """Return the connection of a scope."""
    return (Request if scope["type"] == "http" else WebSocket)(scope, receive, send)


class Limit:
    """A limit as a dependency: `Depends(Limit("10/minute"))`. Any field of a policy's rule can be given by name.

    Functions (`limits`, `key`, `cost`, `exempt`) take the request. `messages` counts the messages of a websocket.
    """

    _written_as: ClassVar[str] = "limit"
    """Its name in FastAPI; a `Limit` of `headgate` is another class."""

    def __init__(self, limits: Any, *, key: Any = "ip", messages: bool = False, **rule: Any) -> None:  # noqa: ANN401
        refuse_bare(limits, sys._getframe(1))
        if messages:
            rule["match"] = {"method": "MESSAGE", **rule.get("match", {})}
        self.limit = EndpointLimit(limits, {"key": key, **rule})
        self.messages = messages

    async def __call__(self, *, connection: HTTPConnection) -> RequestDecision:
        """Admit the request and return the decision of this limit, or raise `RateLimitExceeded`.

        By name, as FastAPI calls it: as a decorator, which it is not, it raises at once.
        """
        seen = RequestDecision()
        seen.limits = limits = request_limits_of(connection)
        before = len(limits.outcomes())
        if not mark_of(connection.scope.get("endpoint"), EXEMPT):
            await enter(connection, (self,))
        seen.only = [outcome for _, outcome in limits.outcomes()[before:]]
        return seen


def request_limits_of(connection: HTTPConnection) -> RequestLimits[bytes]:
    """Return the limits of this request."""
    request_limits: RequestLimits[bytes] | None = connection.scope.get(REQUEST_LIMITS)
    if request_limits is None:
        raise HeadgateError(
            "limits at endpoints need RateLimits(app), or app.add_middleware(RateLimitMiddleware) from "
            "headgate.web.starlette, which opens the store and adds the header fields"
        )
    return request_limits


async def enter(connection: HTTPConnection, limits: tuple[Limit, ...], endpoint: Any = None) -> None:  # noqa: ANN401
    """Decide on a request at its endpoint; wait if a rule delays it."""
    more = enter_at_once(connection, limits, place_of(connection.scope, endpoint))
    if more is not None:
        await more


def enter_at_once(connection: HTTPConnection, limits: tuple[Limit, ...], place: Place) -> Awaitable[None] | None:
    """Like `enter`; return None if the request is admitted at once, else an awaitable that decides."""
    request_limits, scope = request_limits_of(connection), connection.scope
    asked, messages = _split(limits)
    request_limits.connection = connection
    if messages:
        request_limits.messages += messages
        request_limits.messages_route = f"{place.template}/messages {place.name} messages"
    if not asked:
        return None
    times = scope[ENTERED] = scope.get(ENTERED, 0) + 1
    route = route_named(place.template, place.name, times)  # counts of its own
    peer = scope.get("client")
    admitted = request_limits.admit(scope, scope.get("method", "WEBSOCKET"), route, peer[0] if peer else None, asked)
    return None if admitted is True else _enter(connection, request_limits, admitted)


async def _enter(
    connection: HTTPConnection, request_limits: RequestLimits[bytes], admitted: bool | Steps[bool]
) -> None:
    if not isinstance(admitted, bool):
        admitted = await run_awaiting(admitted)
    if not admitted:
        raise refusal_of(connection, request_limits.deny(accepted(connection)), request_limits.refused[1].decision)


@functools.lru_cache(maxsize=4096)
def _split(limits: tuple[Limit, ...]) -> tuple[tuple[EndpointLimit, ...], tuple[EndpointLimit, ...]]:
    """Split limits into those of requests and those of messages."""
    return (
        tuple(each.limit for each in limits if not each.messages),
        tuple(each.limit for each in limits if each.messages),
    )


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Endpoint], Endpoint]:  # noqa: ANN401
    """Limit an endpoint, as a decorator below the route's; the arguments are those of `Limit`.

    The endpoint needs no parameter for it. Several limits on one endpoint are one decision: all are charged, or none.
    """
    refuse_bare(limits, sys._getframe(1))
    limit = Limit(limits, key=key, **rule)

    def decorate(endpoint: Endpoint) -> Endpoint:
        path = route_before(endpoint, sys._getframe(1))
        if path is not None:  # an app without `RateLimits` is not looked at when it starts
            raise InvalidCall(
                f"the route {path} already calls {full_name(endpoint)} without the limit that @limited gives it: "
                "@limited is above the route's decorator; swap the two lines"
            )
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
    """Exempt an endpoint from the default limits and those of its router."""
    setattr(getattr(endpoint, "__func__", endpoint), EXEMPT, True)
    return endpoint


def _wrap(endpoint: Any, limits: tuple[Limit, ...]) -> Any:  # noqa: ANN401
    if inspect.isclass(endpoint):
        return _limited_class(endpoint, limits)
    call = called(endpoint)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidCall("an endpoint that yields cannot be limited by a decorator; write Depends(limit(...))")
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
            raise HeadgateError("a limited endpoint was called without a request; pass one, or call its __wrapped__")
        more = enter_at_once(connection, limits, place_of(connection.scope, endpoint, known))
        if more is not None:
            await more
        return await (endpoint(*args, **kwargs) if awaited else run_in_threadpool(endpoint, *args, **kwargs))

    functools.update_wrapper(wrapper, endpoint)
    name_after(endpoint, wrapper)
    wrapper.__signature__ = asking_for(HTTPConnection, CONNECTION, call)  # type: ignore[attr-defined]
    return wrapper


class _LimitedApp:
    """An ASGI app behind limits; Starlette accepts an ASGI app as an endpoint."""

    def __init__(self, app: asgi.App, limits: tuple[Limit, ...]) -> None:
        name_after(app, self)
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await enter(connection_of(scope, receive, send), self._limits)
        await self._app(scope, receive, send)


def _limited_class(endpoint: Any, limits: tuple[Limit, ...]) -> type:  # noqa: ANN401
    if not issubclass(endpoint, HTTPEndpoint | WebSocketEndpoint):
        raise InvalidCall(f"expected a function or one of Starlette's endpoint classes; got {endpoint!r}")

    async def dispatch(self: Any) -> None:  # noqa: ANN401
        await enter(connection_of(self.scope, self.receive, self.send), limits, endpoint)
        await endpoint.dispatch(self)

    names = {"dispatch": dispatch, "__doc__": endpoint.__doc__, "__module__": endpoint.__module__}
    return type(endpoint.__name__, (endpoint,), {**names, "__qualname__": endpoint.__qualname__})
