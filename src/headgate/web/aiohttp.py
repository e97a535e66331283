"""aiohttp: a policy in front of the app, and limits at its handlers.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@routes.get("/search")
@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(request): ...

A handler is only marked by its limits; they are asked in a middleware, once aiohttp has found the route.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, Unpack

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from headgate.errors import InvalidCall
from headgate.policy import Proxies, RequestView
from headgate.policy.address import read_address
from headgate.policy.lane import MOST_LANES
from headgate.policy.ruling import Ruling
from headgate.policy.steps import run, run_awaiting
from headgate.web.asgi import POLICY_VIOLATION, hold
from headgate.web.callables import full_name, mark_of
from headgate.web.court import Court, Pairs
from headgate.web.docket import Docket, Entry, begin_at_once
from headgate.web.door import Door, Options, PolicyGiven
from headgate.web.headers import WSGI
from headgate.web.route import RouteLimit

LIMITS: Final = "__headgate_limits__"
"""The limits of a handler, on the handler; none at all where it is exempt."""
OF_A_BODY: Final = ("Content-Type", "Content-Length")
Marked = TypeVar("Marked", bound=Callable[..., Any])
Places = list[tuple[str, tuple[RouteLimit, ...]]]
"""Limits, and the place that they are counted at."""


class RateLimitExceeded(web.HTTPException):
    """A no: also an `HTTPTooManyRequests`, `HTTPForbidden` or `HTTPServiceUnavailable`, by its status.

    It is the whole refusal. A middleware that answers something else instead need not care for header fields: those
    of the refusal are added to its answer.
    """

    def __init__(self, fields: Pairs[str], body: bytes) -> None:
        super().__init__(headers=[pair for pair in fields if pair[0] not in OF_A_BODY])
        self.headers["Content-Type"] = dict(fields)["Content-Type"]
        self.body = body


class _TooManyRequests(RateLimitExceeded, web.HTTPTooManyRequests):
    pass


class _Forbidden(RateLimitExceeded, web.HTTPForbidden):
    pass


class _ServiceUnavailable(RateLimitExceeded, web.HTTPServiceUnavailable):
    pass


class _Shadow(web.HTTPException):
    """A no that looks like any other answer."""

    def __init__(self, status: int, fields: Pairs[str], body: bytes) -> None:
        self.status_code = status
        super().__init__()
        self.headers["Content-Type"] = dict(fields)["Content-Type"]
        self.body = body


REFUSALS: Final[dict[int, type[RateLimitExceeded]]] = {429: _TooManyRequests, 403: _Forbidden, 503: _ServiceUnavailable}


class _Visit:
    """One request: what was decided about it, and what the answer has to say of a no."""

    __slots__ = ("docket", "no")

    def __init__(self, docket: Docket[str]) -> None:
        self.docket = docket
        self.no: Pairs[str] = []


class RateLimits:
    """Everything in one line. `default` are the limits of each handler that has none of its own, counted by `key`.

    The policy is asked before any other middleware. The limits of handlers are asked after the middlewares that the app
    has already, which may find out who it is, and see a `RateLimitExceeded`.
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
        self.door: Door[str] = Door(policy, WSGI, read_request, awaited=True, **options)
        self._default = None if default is None else (RouteLimit(default, {"key": key}),)
        self._visit: Any = _request_key("headgate")
        self._known: dict[tuple[Any, str], Places] = {}
        app[OWNER] = self
        app.middlewares.insert(0, self._in_front)
        app.middlewares.append(self._at_handler)
        app.on_response_prepare.append(self._prepare)
        app.on_cleanup.append(self._close)

    @web.middleware
    async def _in_front(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Rule by the policy."""
        door = self.door
        if door.looks:
            door.look(request)
        begun = begin_at_once(door, request.method, request.path, _address(request.remote))
        if begun is None or begun[2].kind != "pass":
            visit = request[self._visit] = _Visit(Docket(door))
            await self._rule(request, visit, request.method)
        else:
            visit = request[self._visit] = _Visit(begun[0])
        try:
            return await handler(request)
        except asyncio.CancelledError:  # whatever else is raised becomes an answer
            await run_awaiting(visit.docket.no_response())
            raise

    @web.middleware
    async def _at_handler(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Rule by the limits of the handler."""
        await self._enter(request, request[self._visit], request.method)
        return await handler(request)

    async def _rule(self, request: web.Request, visit: _Visit, method: str) -> None:
        """Ask the policy, and hold the request where a rule says so."""
        door = self.door
        view = door.view(request)
        view.method = method
        court = door.court(view)
        ruling = await _ask(court, view)
        if ruling.kind != "pass":
            raise self._refusal(visit, court, ruling, view)
        visit.docket = Docket(door, Entry(court, ruling.group, ruling.decision, ruling.charges))
        if ruling.delay_us:
            await hold(visit.docket, ruling.delay_us)

    async def _enter(self, request: web.Request, visit: _Visit, method: str) -> None:
        """Ask the limits of the handler."""
        for place, limits in self._places(request):
            at_once = visit.docket.at_once(limits, place, method, _address(request.remote))
            if at_once is not None and at_once[1].kind == "pass":
                continue
            view = self.door.view(request)
            view.method, view.route = method, place
            court, ruling = await run_awaiting(visit.docket.enter(view, limits))
            if ruling.kind != "pass":
                raise self._refusal(visit, court, ruling, view)
            if ruling.delay_us:
                await hold(visit.docket, ruling.delay_us)

    def _places(self, request: web.Request) -> Places:
        """The limits of a handler or of a view's class, and of the view's method; the default where there are none."""
        route = request.match_info.route
        known = self._known.get((route, request.method))
        if known is None:
            known = self._find_places(request)
            if route.resource is not None and len(self._known) < MOST_LANES:  # methods are the client's
                self._known[route, request.method] = known
        return known

    def _find_places(self, request: web.Request) -> Places:
        found = request.match_info
        route = found.route
        if route.resource is None:  # nothing is there: 404, 405
            return []
        if next(app[OWNER] for app in reversed(found.apps) if OWNER in app) is not self:  # an app within rules there
            return []
        handler = route.handler
        place = f"{route.resource.canonical} {full_name(handler)}"
        own, its, method = mark_of(handler, LIMITS), None, request.method.lower()
        if inspect.isclass(handler):
            its = getattr(getattr(handler, method, None), LIMITS, None)
        if own is None and its is None:
            own = self._default
        elif its == ():
            own = None
        places = ((place, own), (f"{place}.{method}", its))
        return [(each, limits) for each, limits in places if limits]

    def _refusal(
        self, visit: _Visit, court: Court[str], ruling: Ruling, view: RequestView
    ) -> RateLimitExceeded | _Shadow:
        status, fields, body = court.refuse(ruling, view.header("accept"))
        if ruling.kind == "shadow":
            return _Shadow(status, fields, body)
        visit.no = [pair for pair in fields if pair[0] not in OF_A_BODY]
        return REFUSALS[status](fields, body)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Before the first byte of an answer: say what is left, and count what it says."""
        visit: _Visit | None = request.get(self._visit)
        if visit is None:  # answered before any middleware
            return
        if isinstance(response, web.WebSocketResponse) and not visit.no:
            await self._open(request, visit, response)
        for name, value in visit.no:
            response.headers.setdefault(name, value)
        fields = visit.docket.fields
        if fields and "Access-Control-Allow-Origin" not in response.headers:
            response.headers.extend(fields)
        elif fields:
            headers = visit.docket.court.with_fields(response.headers.items(), fields)
            response.headers.clear()
            response.headers.extend(headers)
        if visit.docket.follows:
            await run_awaiting(visit.docket.after(response.status, response.headers.get))

    async def _open(self, request: web.Request, visit: _Visit, socket: web.WebSocketResponse) -> None:
        """Rule on a handshake. Until here it was a GET: anybody can ask for an upgrade and get a page."""
        policy = self.door.policy
        if policy.rules or policy.allow or policy.deny:
            await run_awaiting(visit.docket.release())
            await self._rule(request, visit, "WEBSOCKET")
            await self._enter(request, visit, "WEBSOCKET")
        if visit.docket.court.counts_messages:
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
            court = door.court(view)
            ruling = await run_awaiting(court.judge.before(view))
            if ruling.kind == "pass":
                if ruling.delay_us:
                    await hold(Docket(door, Entry(court, ruling.group, ruling.decision, ())), ruling.delay_us)
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


@functools.lru_cache(maxsize=4096)
def _address(peer: str | None) -> str | None:
    """A peer that has one: on a unix socket nobody does."""
    return peer if peer and read_address(peer) is not None else None


def read_request(request: web.Request, proxies: Proxies | None) -> RequestView:
    """A request as policies see it."""
    # The peer is known from when the connection was made: a client that went away does not become nobody.
    view = RequestView(request.method, request.path, _Headers(request), _address(request.remote), proxies)
    view.query_string = request.rel_url.raw_query_string
    resource = request.match_info.route.resource
    view.route = None if resource is None else resource.canonical
    view.request = request
    return view


async def _ask(court: Court[str], view: RequestView) -> Ruling:
    steps = court.judge.before(view)
    return await run_awaiting(steps) if court.judge.awaits else run(steps)


def _request_key(name: str) -> Any:  # noqa: ANN401
    """aiohttp from 3.14 on warns of keys that are words; before it there are no others."""
    key = getattr(web, "RequestKey", None)
    return key(name, _Visit) if key is not None else object()


class _Headers(Mapping[str, list[str]]):
    """Header lines by lower-case name, straight from the request."""

    __slots__ = ("_headers",)

    def __init__(self, request: web.Request) -> None:
        self._headers = request.headers

    def __getitem__(self, name: str) -> list[str]:
        return self._headers.getall(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower() for name in self._headers})

    def __len__(self) -> int:
        return len({name.lower() for name in self._headers})
