"""aiohttp: a policy in front of the app, and limits at its handlers.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@routes.get("/search")
@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(request): ...

A handler is only marked by its limits; they are put in front of it when the app starts.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar, Unpack

from headgate.wording import requiring

with requiring("headgate.web.aiohttp", "aiohttp"):
    from aiohttp import WSMsgType, hdrs, web
    from aiohttp.typedefs import Handler
    from multidict import istr


from headgate.errors import InvalidCall, RateLimited
from headgate.policy import Proxies, RequestView
from headgate.policy.outcome import PASS
from headgate.policy.path import below
from headgate.policy.steps import run_awaiting
from headgate.web.aiohttp_refusals import RateLimitExceeded, refusal_for, refusal_of
from headgate.web.aiohttp_requests import TOLD, address_of, read_request, request_key
from headgate.web.aiohttp_routes import Guard, prefix_of, put_in_front, routes_in, routes_of
from headgate.web.asgi import POLICY_VIOLATION, SWITCHED, finish, hold
from headgate.web.callables import full_name, mark_of
from headgate.web.endpoint import EndpointLimit
from headgate.web.headers import WSGI
from headgate.web.request_limits import RequestLimits, Ruled
from headgate.web.runtime import Options, PolicyGiven, Runtime

__all__ = ["RateLimitExceeded", "RateLimits", "exempt", "limited"]

LIMITS: Final = "__headgate_limits__"
"""The limits of a handler, on the handler; none at all where it is exempt."""
Marked = TypeVar("Marked", bound=Callable[..., Any])
ORIGIN: Final = istr("Access-Control-Allow-Origin")
Place = tuple[str, tuple[EndpointLimit, ...]]
"""Limits, and the place that they are counted at."""
Places = list[Place]


_LAST: Final[ContextVar[tuple[RequestLimits[str], Any] | None]] = ContextVar("headgate", default=None)
"""What was decided last in this task, and about whom: of a request that a middleware has cloned, the one that aiohttp
answers has nothing on it."""


class RateLimits:
    """Everything in one line. `default` are the limits of each handler that has none of its own, counted by `key`.

    The policy is asked before any middleware. The limits of handlers are asked after them: they may find out who it is,
    and see a `RateLimitExceeded`.
    """

    def __init__(
        self,
        app: web.Application,
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        if app.pre_frozen:
            raise InvalidCall("the app runs already, or is part of another: RateLimits(app) goes where the app is made")
        if OWNER in app:
            raise InvalidCall("the app has its limits already: one RateLimits for each app")
        self.runtime: Runtime[str] = Runtime(policy, WSGI, self._read, awaited=True, **options)
        self.runtime.routes = lambda: routes_in(app, self._root or "")
        self._app = app
        self._default = None if default is None else (EndpointLimit(default, {"key": key}),)
        self._request_limits: Any = request_key()
        self._covered: set[web.AbstractRoute] = set()
        self._limited: dict[web.AbstractRoute, tuple[Any, str]] = {}
        """Handlers that have limits, and their place."""
        self._root: str | None = None
        """Where the app is within another one, once that is known."""
        app[OWNER] = self
        if policy is not None:
            app.middlewares.insert(0, self._in_front)
        app.on_startup.append(self._cover)
        app.on_response_prepare.append(self._prepare)
        app.on_cleanup.append(self._close)

    @web.middleware
    async def _in_front(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Rule by the policy."""
        runtime = self.runtime
        if runtime.looks:
            runtime.look(request)
        request_limits = request[self._request_limits] = RequestLimits(runtime)
        begun = request_limits.ask(runtime.fast_paths[request.method, self._path(request)], address_of(request.remote))
        if begun is None or begun[1].kind != "pass":
            await self._rule(request, request_limits, request.method, None, begun)
        return await _answer(request, request_limits, handler)

    def _read(self, request: web.Request, proxies: Proxies | None) -> RequestView:
        """A request as policies see it."""
        return read_request(request, self._path(request), proxies)

    def _path(self, request: web.Request) -> str:
        """The path as this app routes it, which may be within another one."""
        apps = request.match_info.apps
        if apps and apps[0] is not self._app:
            if self._root is None:
                self._root = prefix_of(self._app, apps[0]) or ""
            return below(request.path, self._root)
        return request.path

    async def _cover(self, app: web.Application) -> None:
        """Put limits in front of handlers: a middleware would cost more than the limits do."""
        for route in routes_of(app, lambda within: OWNER in within):  # an app within may rule for itself
            handler = route.handler
            place = f"{route.resource.canonical if route.resource else ''} {full_name(handler)}"
            known = {method: self._places(handler, place, method) for method in hdrs.METH_ALL}
            if route in self._covered:  # who runs an app twice starts it twice
                continue
            self._covered.add(route)
            call = self._catching(handler)
            if any(known.values()):
                self._limited[route] = handler, place
                call = self._guard(handler, place, known, call)
            put_in_front(route, call)

    def _catching(self, handler: Any) -> Guard:  # noqa: ANN401
        """The handler; what a limiter of the app's own raises in it is a refusal as any other."""

        async def caught(request: web.Request) -> web.StreamResponse:
            try:
                answer: web.StreamResponse = await handler(request)
            except RateLimited as error:
                request_limits = self._request_limits_of(request)
                if request_limits is None:
                    request_limits = request[self._request_limits] = RequestLimits(self.runtime)
                raise refusal_for(request, request_limits, error) from error
            return answer

        return caught

    def _guard(self, handler: Any, place: str, known: dict[str, Places], call: Guard) -> Guard:  # noqa: ANN401
        """The limits of a handler, and then the call of it."""
        runtime, key = self.runtime, self._request_limits
        plain: bool | None = None  # no middleware is around it

        def guarded(request: web.Request) -> Awaitable[web.StreamResponse]:
            nonlocal plain
            request_limits = None if plain else self._request_limits_of(request)
            if request_limits is None:
                request_limits = request[key] = RequestLimits(runtime)
                if runtime.looks:
                    runtime.look(request)
                if plain is None:
                    plain = not any(app.middlewares for app in request.match_info.apps)
                if not plain:
                    _LAST.set((request_limits, request.match_info))
            method, address = request.method, address_of(request.remote)
            places = known[method] if method in known else self._places(handler, place, method)
            for each in places:
                found = request_limits.ask(runtime.fast_path_at(each[1], each[0], method), address)
                if found is None or found[1] is not PASS:
                    return self._ask(request, request_limits, places[places.index(each) :], found, call)
            return call(request)

        return guarded

    def _request_limits_of(self, request: web.Request) -> RequestLimits[str] | None:
        last = _LAST.get()
        if last is not None and last[1] is request.match_info and last[0].runtime is self.runtime:
            return last[0]
        return request.get(self._request_limits)

    async def _ask(
        self,
        request: web.Request,
        request_limits: RequestLimits[str],
        places: Places,
        found: Ruled[str] | None,
        handler: Guard,
    ) -> web.StreamResponse:
        """Where limits have to look at the request, or one has refused it."""
        for place in places:
            await self._rule(request, request_limits, request.method, place, found)
            found = None
        return await _answer(request, request_limits, handler)

    async def _rule(
        self,
        request: web.Request,
        request_limits: RequestLimits[str],
        method: str,
        place: Place | None,
        found: Ruled[str] | None,
    ) -> None:
        """Ask the limits of a place or the policy, unless that has `found` out; hold the request where one says so."""
        if found is None:
            view = self.runtime.view(request)
            view.method = method
            if place is None:
                found = await run_awaiting(request_limits.begin(view))
            else:
                view.route, limits = place
                found = await run_awaiting(request_limits.enter(view, limits))
        responder, outcome = found
        if outcome.kind != "pass":
            await run_awaiting(request_limits.release())
            raise refusal_of(request, request_limits, responder, outcome)
        if outcome.delay_us:
            await hold(request_limits, outcome.delay_us)

    def _places(self, handler: Any, place: str, method: str) -> Places:  # noqa: ANN401
        """The limits of a handler or of a view's class, and of the view's method; the default where there are none."""
        own, its, name = mark_of(handler, LIMITS), None, method.lower()
        if inspect.isclass(handler):
            its = getattr(getattr(handler, name, None), LIMITS, None)
        if own is None and its is None:
            own = self._default
        elif its == ():
            own = None
        places = ((place, own), (f"{place}.{name}", its))
        return [(each, limits) for each, limits in places if limits]

    def _prepare(self, request: web.Request, response: web.StreamResponse) -> Awaitable[None]:
        """Before the first byte of an answer: say what is left, and count what it says."""
        try:
            request_limits = request[self._request_limits]
        except KeyError:
            request_limits = self._request_limits_of(request)
        if request_limits is None:
            return TOLD
        if request_limits.follows or request_limits.denial is not None or response.status == SWITCHED:
            return self._prepare_slowly(request, response, request_limits)
        _tell(response, request_limits)
        return TOLD

    async def _prepare_slowly(
        self, request: web.Request, response: web.StreamResponse, request_limits: RequestLimits[str]
    ) -> None:
        if isinstance(response, web.WebSocketResponse) and request_limits.denial is None:
            await self._open(request, request_limits, response)
        for name, value in request_limits.denial.fields if request_limits.denial is not None else ():
            response.headers.setdefault(name, value)
        if request_limits.follows:
            await finish(request_limits, request_limits.after(response.status, response.headers.get))
        _tell(response, request_limits)

    async def _open(
        self, request: web.Request, request_limits: RequestLimits[str], socket: web.WebSocketResponse
    ) -> None:
        """Rule on a handshake. Until here it was a GET: anybody can ask for an upgrade and get a page."""
        policy = self.runtime.policy
        if policy.rules or policy.allow or policy.deny:
            await run_awaiting(request_limits.release())
            await self._rule(request, request_limits, "WEBSOCKET", None, None)
            counts = request_limits.responder.counts_messages
            if request.match_info.route in self._limited:
                for place in self._places(*self._limited[request.match_info.route], request.method):
                    await self._rule(request, request_limits, "WEBSOCKET", place, None)
            if counts:
                self._count_messages(request, socket)

    def _count_messages(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        """Count each message that arrives; the connection of one that sends too many is closed."""
        receive = socket.receive
        runtime = self.runtime

        async def counted(timeout: float | None = None) -> Any:  # noqa: ANN401
            message = await receive(timeout)
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            view = runtime.view(request)
            view.method = "MESSAGE"
            request_limits = RequestLimits(runtime)
            _, outcome = await run_awaiting(request_limits.begin(view))
            if outcome.kind == "pass":
                if outcome.delay_us:
                    await hold(request_limits, outcome.delay_us)
                await run_awaiting(request_limits.land())  # a message is in flight until it is handed over
                return message
            await socket.close(code=POLICY_VIOLATION, message=b"rate limited")
            return await receive(timeout)  # that it is closed

        socket.receive = counted  # type: ignore[method-assign]

    async def _close(self, app: web.Application) -> None:
        await self.runtime.aclose()


OWNER: Final = web.AppKey("headgate", RateLimits)
"""Where an app keeps its limits."""


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """A limit of a handler: a function, a method, a `web.View` or one of its methods.

    Any field of a policy's rule can be given by name. Functions (`limits`, `key`, `cost`, `exempt`) take the request.
    Several on one handler are one decision: all are charged, or none is. Without `RateLimits(app)` nobody asks.
    """
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(handler: Marked) -> Marked:
        if inspect.isclass(handler) and not issubclass(handler, web.View):
            raise InvalidCall(f"a limit is for handlers and for web.View; got {handler!r}")
        return _marked(handler, (limit, *(mark_of(handler, LIMITS) or ())))

    return decorate


def exempt(handler: Marked) -> Marked:
    """A handler that default limits leave alone; a method of a view, that those of its class do."""
    return _marked(handler, ())


def _marked(handler: Marked, limits: tuple[EndpointLimit, ...]) -> Marked:
    """The handler with its limits; of a bound method another one, for its class is not asked."""
    target: Any = functools.partial(handler) if inspect.ismethod(handler) else handler
    setattr(target, LIMITS, limits)
    marked: Marked = target
    return marked


async def _answer(request: web.Request, request_limits: RequestLimits[str], handler: Guard) -> web.StreamResponse:
    """What the handler answers; what is in flight ends with it."""
    try:
        return await handler(request)
    except RateLimited as error:  # of a limiter that a middleware has asked
        raise refusal_for(request, request_limits, error) from error
    except asyncio.CancelledError:  # whatever else is raised becomes an answer
        await finish(request_limits, request_limits.end())
        raise
    finally:
        if request_limits.holds_permits:
            await finish(request_limits, request_limits.land())


def _tell(response: web.StreamResponse, request_limits: RequestLimits[str]) -> None:
    """Say in an answer how much is left."""
    fields, headers = request_limits.fields, response.headers
    if fields and ORIGIN in headers:
        every = request_limits.responder.with_fields(headers.items(), fields)
        headers.clear()
        headers.extend(every)
    else:
        headers.extend(fields)
