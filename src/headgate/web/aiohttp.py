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
from headgate.web.docket import Docket, Ruled
from headgate.web.door import Door, Options, PolicyGiven
from headgate.web.headers import WSGI
from headgate.web.route import RouteLimit

__all__ = ["RateLimitExceeded", "RateLimits", "exempt", "limited"]

LIMITS: Final = "__headgate_limits__"
"""The limits of a handler, on the handler; none at all where it is exempt."""
Marked = TypeVar("Marked", bound=Callable[..., Any])
ORIGIN: Final = istr("Access-Control-Allow-Origin")
Place = tuple[str, tuple[RouteLimit, ...]]
"""Limits, and the place that they are counted at."""
Places = list[Place]


_LAST: Final[ContextVar[tuple[Docket[str], Any] | None]] = ContextVar("headgate", default=None)
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
        self.door: Door[str] = Door(policy, WSGI, self._read, awaited=True, **options)
        self.door.routes = lambda: routes_in(app, self._root or "")
        self._app = app
        self._default = None if default is None else (RouteLimit(default, {"key": key}),)
        self._docket: Any = request_key()
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
        door = self.door
        if door.looks:
            door.look(request)
        docket = request[self._docket] = Docket(door)
        begun = docket.ask(door.fast_paths[request.method, self._path(request)], address_of(request.remote))
        if begun is None or begun[1].kind != "pass":
            await self._rule(request, docket, request.method, None, begun)
        return await _answer(request, docket, handler)

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
                docket = self._docket_of(request)
                if docket is None:
                    docket = request[self._docket] = Docket(self.door)
                raise refusal_for(request, docket, error) from error
            return answer

        return caught

    def _guard(self, handler: Any, place: str, known: dict[str, Places], call: Guard) -> Guard:  # noqa: ANN401
        """The limits of a handler, and then the call of it."""
        door, key = self.door, self._docket
        plain: bool | None = None  # no middleware is around it

        def guarded(request: web.Request) -> Awaitable[web.StreamResponse]:
            nonlocal plain
            docket = None if plain else self._docket_of(request)
            if docket is None:
                docket = request[key] = Docket(door)
                if door.looks:
                    door.look(request)
                if plain is None:
                    plain = not any(app.middlewares for app in request.match_info.apps)
                if not plain:
                    _LAST.set((docket, request.match_info))
            method, address = request.method, address_of(request.remote)
            places = known[method] if method in known else self._places(handler, place, method)
            for each in places:
                found = docket.ask(door.fast_path_at(each[1], each[0], method), address)
                if found is None or found[1] is not PASS:
                    return self._ask(request, docket, places[places.index(each) :], found, call)
            return call(request)

        return guarded

    def _docket_of(self, request: web.Request) -> Docket[str] | None:
        last = _LAST.get()
        if last is not None and last[1] is request.match_info and last[0].door is self.door:
            return last[0]
        return request.get(self._docket)

    async def _ask(
        self, request: web.Request, docket: Docket[str], places: Places, found: Ruled[str] | None, handler: Guard
    ) -> web.StreamResponse:
        """Where limits have to look at the request, or one has refused it."""
        for place in places:
            await self._rule(request, docket, request.method, place, found)
            found = None
        return await _answer(request, docket, handler)

    async def _rule(
        self, request: web.Request, docket: Docket[str], method: str, place: Place | None, found: Ruled[str] | None
    ) -> None:
        """Ask the limits of a place or the policy, unless that has `found` out; hold the request where one says so."""
        if found is None:
            view = self.door.view(request)
            view.method = method
            if place is None:
                found = await run_awaiting(docket.begin(view))
            else:
                view.route, limits = place
                found = await run_awaiting(docket.enter(view, limits))
        court, outcome = found
        if outcome.kind != "pass":
            await run_awaiting(docket.release())
            raise refusal_of(request, docket, court, outcome)
        if outcome.delay_us:
            await hold(docket, outcome.delay_us)

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
            docket = request[self._docket]
        except KeyError:
            docket = self._docket_of(request)
        if docket is None:
            return TOLD
        if docket.follows or docket.denial is not None or response.status == SWITCHED:
            return self._prepare_slowly(request, response, docket)
        _tell(response, docket)
        return TOLD

    async def _prepare_slowly(self, request: web.Request, response: web.StreamResponse, docket: Docket[str]) -> None:
        if isinstance(response, web.WebSocketResponse) and docket.denial is None:
            await self._open(request, docket, response)
        for name, value in docket.denial.fields if docket.denial is not None else ():
            response.headers.setdefault(name, value)
        if docket.follows:
            await finish(docket, docket.after(response.status, response.headers.get))
        _tell(response, docket)

    async def _open(self, request: web.Request, docket: Docket[str], socket: web.WebSocketResponse) -> None:
        """Rule on a handshake. Until here it was a GET: anybody can ask for an upgrade and get a page."""
        policy = self.door.policy
        if policy.rules or policy.allow or policy.deny:
            await run_awaiting(docket.release())
            await self._rule(request, docket, "WEBSOCKET", None, None)
            counts = docket.court.counts_messages
            if request.match_info.route in self._limited:
                for place in self._places(*self._limited[request.match_info.route], request.method):
                    await self._rule(request, docket, "WEBSOCKET", place, None)
            if counts:
                self._count_messages(request, socket)

    def _count_messages(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        """Count each message that arrives; the connection of one that sends too many is closed."""
        receive = socket.receive
        door = self.door

        async def counted(timeout: float | None = None) -> Any:  # noqa: ANN401
            message = await receive(timeout)
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            view = door.view(request)
            view.method = "MESSAGE"
            docket = Docket(door)
            _, outcome = await run_awaiting(docket.begin(view))
            if outcome.kind == "pass":
                if outcome.delay_us:
                    await hold(docket, outcome.delay_us)
                await run_awaiting(docket.land())  # a message is in flight until it is handed over
                return message
            await socket.close(code=POLICY_VIOLATION, message=b"rate limited")
            return await receive(timeout)  # that it is closed

        socket.receive = counted  # type: ignore[method-assign]

    async def _close(self, app: web.Application) -> None:
        await self.door.aclose()


OWNER: Final = web.AppKey("headgate", RateLimits)
"""Where an app keeps its limits."""


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """A limit of a handler: a function, a method, a `web.View` or one of its methods.

    Any field of a policy's rule can be given by name. Functions (`limits`, `key`, `cost`, `exempt`) take the request.
    Several on one handler are one decision: all are charged, or none is. Without `RateLimits(app)` nobody asks.
    """
    limit = RouteLimit(limits, {"key": key, **rule})

    def decorate(handler: Marked) -> Marked:
        if inspect.isclass(handler) and not issubclass(handler, web.View):
            raise InvalidCall(f"a limit is for handlers and for web.View; got {handler!r}")
        return _marked(handler, (limit, *(mark_of(handler, LIMITS) or ())))

    return decorate


def exempt(handler: Marked) -> Marked:
    """A handler that default limits leave alone; a method of a view, that those of its class do."""
    return _marked(handler, ())


def _marked(handler: Marked, limits: tuple[RouteLimit, ...]) -> Marked:
    """The handler with its limits; of a bound method another one, for its class is not asked."""
    target: Any = functools.partial(handler) if inspect.ismethod(handler) else handler
    setattr(target, LIMITS, limits)
    marked: Marked = target
    return marked


async def _answer(request: web.Request, docket: Docket[str], handler: Guard) -> web.StreamResponse:
    """What the handler answers; what is in flight ends with it."""
    try:
        return await handler(request)
    except RateLimited as error:  # of a limiter that a middleware has asked
        raise refusal_for(request, docket, error) from error
    except asyncio.CancelledError:  # whatever else is raised becomes an answer
        await finish(docket, docket.end())
        raise
    finally:
        if docket.holds_permits:
            await finish(docket, docket.land())


def _tell(response: web.StreamResponse, docket: Docket[str]) -> None:
    """Say in an answer how much is left."""
    fields, headers = docket.fields, response.headers
    if fields and ORIGIN in headers:
        every = docket.court.with_fields(headers.items(), fields)
        headers.clear()
        headers.extend(every)
    else:
        headers.extend(fields)
