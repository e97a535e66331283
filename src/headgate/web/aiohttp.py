"""aiohttp: a policy in front of the app, and limits at its handlers.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@routes.get("/search")
@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(request): ...

A decorator marks its handler; the limits are put in front of it when the app starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Unpack

from headgate.wording import requiring

with requiring("headgate.web.aiohttp", "aiohttp"):
    from aiohttp import WSMsgType, hdrs, web
    from aiohttp.typedefs import Handler
    from multidict import istr

    from headgate.web.aiohttp_marks import OWNER, Place, exempt, is_marked, limited, places_of


from headgate.errors import InvalidCall
from headgate.policy import Proxies, RequestView
from headgate.steps import Steps, run_awaiting
from headgate.web.aiohttp_refusals import RateLimitExceeded, answer, refusal_for, refusal_of
from headgate.web.aiohttp_requests import RATE_LIMIT, address_of, lines_of, path_of, read_request, request_key
from headgate.web.aiohttp_routes import Guard, prefix_of, put_in_front, routes_in, routes_of
from headgate.web.asgi_sending import POLICY_VIOLATION, SWITCHED, finish
from headgate.web.callables import endpoint_within, full_name
from headgate.web.edge import Edge
from headgate.web.endpoint import EndpointLimit
from headgate.web.headers import WSGI
from headgate.web.mounts import below
from headgate.web.options import Options, PolicyGiven, WebOptions
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits, limits_of
from headgate.web.responder import RAISED
from headgate.web.runtime import Reader, Runtime

__all__ = ["RATE_LIMIT", "RateLimitExceeded", "RateLimits", "exempt", "limited"]

ORIGIN: Final = istr("Access-Control-Allow-Origin")
_LAST: Final[ContextVar[tuple[RequestLimits[str], Any] | None]] = ContextVar("headgate", default=None)
"""The last limits in this task, and their request's match: if a middleware has cloned a request, the limits are on the
clone, not on the request that aiohttp answers."""


class RateLimits(Edge[str]):
    """The limits of an app. `default` are the limits of each handler that has none of its own, counted by `key`.

    The policy comes before any middleware. The limits of handlers come after them: a middleware may find out the user,
    and may catch a `RateLimitExceeded`.
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
            raise InvalidCall("the app runs already, or is part of another; write RateLimits(app) where it is created")
        if OWNER in app:
            raise InvalidCall("this app already has a RateLimits; create one for each app")
        reader = Reader(WSGI, self._read, lines_of)
        self._runtime: Runtime[str] = Runtime(policy, reader, WebOptions(**options), awaited=True)
        self._runtime.routes = lambda: routes_in(app, self._root or "")
        self._runtime.endpoints = self._endpoints
        self._limits = limits_of(self._runtime)
        self._app = app
        self._default = None if default is None else (EndpointLimit(default, {"key": key}),)
        self._on_request: Any = request_key()
        self._entered: Any = request_key()
        self._covered: set[web.AbstractRoute] = set()
        self._limited: dict[web.AbstractRoute, tuple[Any, str]] = {}
        """Handlers with limits and their places, by route."""
        self._root: str | None = None
        """The path of the app within another one, once it is known."""
        app[OWNER] = self
        if policy is not None:
            app.middlewares.insert(0, self._in_front)
        app.on_startup.append(self._cover)
        app.on_response_prepare.append(self._prepare)
        app.on_cleanup.append(self._close)

    @web.middleware
    async def _in_front(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Decide by the policy."""
        runtime, limits = self._runtime, self._limits()
        if runtime.looks:
            limits.view = runtime.look(request)
        self._keep(request, limits)
        admitted = limits.admit(request, request.method, self._path(request), address_of(request.remote))
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            raise refusal_of(request, limits)
        return await answer(request, limits, handler)

    def _keep(self, request: web.Request, limits: RequestLimits[str]) -> RequestLimits[str]:
        """Keep the limits of a request; its handler finds the decision as `request[RATE_LIMIT]`."""
        request[self._on_request] = limits
        seen = request[RATE_LIMIT] = RequestDecision()
        seen.limits = limits
        return limits

    def _read(self, request: web.Request, proxies: Proxies | None) -> RequestView:
        """Return the view of a request, for rules."""
        return read_request(request, self._path(request), proxies)

    def _path(self, request: web.Request) -> str:
        """Return the path as this app routes it; the app may be within another one."""
        apps = request.match_info.apps
        if apps and apps[0] is not self._app:
            if self._root is None:
                self._root = prefix_of(self._app, apps[0]) or ""
            return below(path_of(request), self._root)
        return path_of(request)

    async def _cover(self, app: web.Application) -> None:
        """Put limits in front of handlers: a middleware would cost more than the limits do."""
        for route in routes_of(app, lambda within: OWNER in within):  # an app within may have limits of its own
            handler = route.handler
            place = _place_of(route, full_name(handler))
            known = {method: places_of(handler, place, method, self._default) for method in hdrs.METH_ALL}
            if route in self._covered:  # an app that runs twice starts twice
                continue
            self._covered.add(route)
            call = self._catching(endpoint_within(handler))
            if any(known.values()):
                self._limited[route] = handler, place
                call = self._guard(handler, place, known, call)
            put_in_front(route, call)

    def _endpoints(self) -> Iterator[Place]:
        """Yield the places of the app's handlers, once the app has started."""
        for handler, place in self._limited.values():
            for method in hdrs.METH_ALL:
                yield from places_of(handler, place, method, self._default)

    def _catching(self, handler: Any) -> Guard:  # noqa: ANN401
        """Wrap a handler: an error of a limiter or a budget of the app's own in it becomes a refusal like any other."""

        async def caught(request: web.Request) -> web.StreamResponse:
            try:
                answer: web.StreamResponse = await handler(request)
            except RAISED as error:
                limits = self._limits_of(request)
                if limits is None:
                    limits = self._keep(request, self._limits())
                raise refusal_for(request, limits, error) from error
            return answer

        return caught

    def _guard(self, handler: Any, place: str, known: dict[str, list[Place]], call: Guard) -> Guard:  # noqa: ANN401
        """Wrap a handler: decide by its limits, then call it."""
        plain: bool | None = None  # whether there is no middleware around it

        def guarded(request: web.Request) -> Awaitable[web.StreamResponse]:
            nonlocal plain
            limits = None if plain else self._limits_of(request)
            if limits is None:
                limits = self._keep(request, self._limits())
                if self._runtime.looks:
                    limits.view = self._runtime.look(request)
                if plain is None:
                    plain = not any(app.middlewares for app in request.match_info.apps)
                if not plain:
                    _LAST.set((limits, request.match_info))
            method, address = request.method, address_of(request.remote)
            places = known[method] if method in known else places_of(handler, place, method, self._default)
            for at, (route, each) in enumerate(places):
                admitted = limits.admit(request, method, route, address, each)
                if admitted is not True:
                    return self._decide(request, limits, places[at + 1 :], admitted, call)
            return call(request)

        return guarded

    def _enter(self, request: web.Request, handler: Place, call: Guard) -> Awaitable[web.StreamResponse]:
        """Decide by the limits of a handler, unless that was done in front of it; then call it."""
        (name, own), route = handler, request.match_info.route
        if is_marked(self._limited.get(route, (None,))[0], request.method, own):
            return call(request)
        limits = self._limits_of(request)
        if limits is None:
            limits = self._keep(request, self._limits())
            if self._runtime.looks:
                limits.view = self._runtime.look(request)
        place = _place_of(route, name), own
        request[self._entered] = (*request.get(self._entered, ()), place)
        return self._decide(request, limits, [place], True, call)

    def _limits_of(self, request: web.Request) -> RequestLimits[str] | None:
        last = _LAST.get()
        if last is not None and last[1] is request.match_info and last[0].runtime is self._runtime:
            return last[0]
        return request.get(self._on_request)

    async def _decide(
        self,
        request: web.Request,
        limits: RequestLimits[str],
        more: list[Place],
        admitted: bool | Steps[bool],
        handler: Guard,
    ) -> web.StreamResponse:
        """Finish a decision that takes steps or is a refusal; then call the handler."""
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            raise refusal_of(request, limits)
        for place in more:
            await self._admit(request, limits, request.method, place)
        return await answer(request, limits, handler)

    async def _admit(self, request: web.Request, limits: RequestLimits[str], method: str, place: Place | None) -> None:
        """Decide by the limits of a place, or by the policy; raise a refusal."""
        where, each = (self._path(request), None) if place is None else place
        admitted = limits.admit(request, method, where, address_of(request.remote), each)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            raise refusal_of(request, limits)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Settle the charges by a response, and add the header fields, before its first byte."""
        limits: RequestLimits[str] | None = request.get(self._on_request)
        if limits is None:
            limits = self._limits_of(request)
            if limits is None:
                return
        if response.status == SWITCHED and limits.denial is None and isinstance(response, web.WebSocketResponse):
            await self._open(request, limits, response)
        if limits.denial is not None:
            for name, value in limits.denial.fields:
                response.headers.setdefault(name, value)
        if limits.follows:
            await finish(limits, limits.after(response.status, response.headers.get))
        fields, headers = limits.fields, response.headers
        if fields and ORIGIN in headers:
            fields = limits.responder.with_fields(headers.items(), fields)
            headers.clear()
        headers.extend(fields)

    async def _open(self, request: web.Request, limits: RequestLimits[str], socket: web.WebSocketResponse) -> None:
        """Decide on a handshake. Until here it counted as a GET: any request can ask for an upgrade and get a page."""
        policy = self.policy
        if policy.rules or policy.allow or policy.deny or policy.shed:
            shedding = self._runtime.shedding
            await run_awaiting(limits.refund(shedding is not None and shedding.keeps(limits, self._path(request))))
            counts = self._runtime.responder_now.counts_messages
            await self._admit(request, limits, "WEBSOCKET", None)
            places = list(request.get(self._entered, ()))
            if request.match_info.route in self._limited:
                handler, place = self._limited[request.match_info.route]
                places += places_of(handler, place, request.method, self._default)
            for each in places:
                await self._admit(request, limits, "WEBSOCKET", each)
            if counts:
                self._count_messages(request, socket)

    def _count_messages(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        """Count each message that arrives; close the connection of a client that sends too many."""
        receive = socket.receive

        async def counted(timeout: float | None = None) -> Any:  # noqa: ANN401
            message = await receive(timeout)
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            limits = self._limits()
            admitted = limits.admit(request, "MESSAGE", self._path(request), address_of(request.remote))
            if not isinstance(admitted, bool):
                admitted = await run_awaiting(admitted)
            if admitted:
                await run_awaiting(limits.release())  # a message is in flight until the app gets it
                return message
            await socket.close(code=POLICY_VIOLATION, message=b"rate limited")
            return await receive(timeout)  # the message that the connection is closed

        socket.receive = counted  # type: ignore[method-assign]

    async def _close(self, app: web.Application) -> None:
        await self.aclose()


def _place_of(route: web.AbstractRoute, name: str) -> str:
    """Return the place where the limits of this handler count."""
    return f"{route.resource.canonical if route.resource else ''} {name}"
