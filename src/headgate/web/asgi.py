"""ASGI: one line in front of Starlette, FastAPI, Litestar, Quart, Django or any other ASGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Unpack

from headgate.errors import RateLimited
from headgate.policy import Proxies, RequestView
from headgate.policy.fast_path import Keys
from headgate.policy.key import client_key
from headgate.policy.path import below
from headgate.policy.steps import Steps, run, run_awaiting, run_to_the_end
from headgate.web.headers import ASGI
from headgate.web.request_limits import Entry, RequestLimits
from headgate.web.responder import Responder, decide
from headgate.web.runtime import Options, PolicyGiven, Runtime
from headgate.web.unreached import routes_below

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
POLICY_VIOLATION: Final = 1008
"""The code with which a websocket is closed that sent too much."""
SWITCHED: Final = 101
"""The status of a websocket."""
REQUEST_LIMITS: Final = "headgate"
"""Where endpoints find in their scope what was decided about the request so far."""


class RateLimitMiddleware:
    """A policy in front of an ASGI app: HTTP, websockets and, where a rule says so, their messages.

    `policy` is a file, a mapping or a `Policy`. Without a `user` function, whom an authentication middleware has put
    into the scope is used.
    """

    endpoints: ClassVar[bool] = False
    """Whether endpoints may have limits of their own; then each request has a `RequestLimits`."""

    def __init__(self, app: App, policy: PolicyGiven | None, **options: Unpack[Options]) -> None:
        self.app = app
        self.runtime: Runtime[bytes] = Runtime(policy, ASGI, read_scope, awaited=True, **options)
        self.runtime.routes = lambda: routes_below(self.app)
        self._fronted = policy is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any kind."""
        kind = scope["type"]
        if kind != "http":
            await self._other(kind, scope, receive, send)
            return
        runtime = self.runtime
        if runtime.looks:
            runtime.look(scope)
        if not self._fronted:
            await self._pass(scope, receive, send, RequestLimits(runtime))
            return
        found = runtime.fast_paths[scope["method"], path_of(scope)]
        if found is not None:
            responder, fast_path, fields = found
            if fast_path is None:
                if self.endpoints:
                    await self._pass(scope, receive, send, RequestLimits(runtime))
                else:
                    await self.app(scope, receive, send)
                return
            keys: Keys | None
            if fast_path.by_address and runtime.proxies is None:
                peer = scope.get("client")
                keys = client_key(peer[0]) if peer and peer[0] else None
            else:
                keys = fast_path.keys(runtime.view(scope))
            decision = decide(fast_path, keys)
            if decision is not None:
                if not decision.allowed:
                    await _answer(send, responder.refuse_in_fast_path(fast_path, decision, _accept(scope["headers"])))
                elif self.endpoints:
                    await self._pass(
                        scope, receive, send, RequestLimits(runtime, Entry(responder, fast_path.group, decision, ()))
                    )
                else:
                    await self.app(scope, receive, _adding(responder, fields(decision), send))
                return
        await self._decided(scope, receive, send)

    async def _decided(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that has to be looked at."""
        runtime = self.runtime
        view = runtime.view(scope)
        responder = runtime.responder(view)
        compiled = responder.compiled
        steps = compiled.before(view)
        outcome = await run_awaiting(steps) if compiled.awaits else run(steps)
        if outcome.kind != "pass":
            await _answer(send, responder.refuse(outcome, _accept(scope["headers"])))
            return
        if outcome.charges or self.endpoints:
            request_limits = RequestLimits(runtime, Entry(responder, outcome.group, outcome.decision, outcome.charges))
            if outcome.delay_us:
                await hold(request_limits, outcome.delay_us)
            await self._pass(scope, receive, send, request_limits)
        else:
            await self.app(scope, receive, _adding(responder, responder.fields(outcome.group, outcome.decision), send))

    async def _pass(self, scope: Scope, receive: Receive, send: Send, request_limits: RequestLimits[bytes]) -> None:
        """Call the app; tell what is left, and count what its response says."""
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started or message["type"] != "http.response.start":
                return send(message)
            started = True
            return (
                _counting(request_limits, message, send)
                if request_limits.follows
                else send(_telling(request_limits, message))
            )

        if self.endpoints:
            request_limits.path = path_of(scope)
            scope[REQUEST_LIMITS] = request_limits
        try:
            await self.app(scope, receive, answer)
        except RateLimited as no:  # of a limiter of the app's own
            if started or not self.endpoints:
                raise
            await _answer(answer, request_limits.refuse_for(no.decision, _accept(scope["headers"])))
        finally:
            if request_limits.follows:  # nothing more to do, unless a permit is held, or there was no answer
                await finish(request_limits, request_limits.end())

    async def _other(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, self._closing(send) if kind == "lifespan" else send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.runtime.looks:
            self.runtime.look(scope)
        view = self.runtime.view(scope)
        responder = self.runtime.responder(view)
        outcome = await run_awaiting(responder.compiled.before(view))
        if outcome.kind != "pass":
            await refuse_websocket(scope, receive, send, responder.refuse(outcome, view.accept))
            return
        request_limits = RequestLimits(self.runtime, Entry(responder, outcome.group, outcome.decision, outcome.charges))
        if outcome.delay_us:
            await hold(request_limits, outcome.delay_us)
        request_limits.path = view.path
        if self.endpoints:
            scope[REQUEST_LIMITS] = request_limits
        limited = self._limit_messages(scope, receive, send, request_limits)
        try:
            await self.app(scope, limited if self.endpoints or responder.counts_messages else receive, send)
        finally:
            await finish(request_limits, request_limits.end(SWITCHED))

    def _limit_messages(
        self, scope: Scope, receive: Receive, send: Send, request_limits: RequestLimits[bytes]
    ) -> Receive:
        """Count each message that arrives; the connection of one that sends too many is closed."""
        runtime = self.runtime

        async def counted() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            view = runtime.view(scope)
            view.method, view.path = "MESSAGE", request_limits.path
            responder = runtime.responder(view)
            outcome = await run_awaiting(responder.compiled.before(view))
            told = RequestLimits(runtime, Entry(responder, outcome.group, outcome.decision, outcome.charges))
            if outcome.kind == "pass" and request_limits.messages:
                view.route, view.request = request_limits.route, request_limits.request
                _, outcome = await run_awaiting(told.enter(view, request_limits.messages))
            if outcome.kind == "pass":
                if outcome.delay_us:
                    await hold(told, outcome.delay_us)
                await run_awaiting(told.land())  # a message is in flight until it is handed over
                return message
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "rate limited"})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

        return counted

    def _closing(self, send: Send) -> Send:
        """Close the stores when the app has shut down."""

        async def answer(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self.runtime.aclose()
            await send(message)

        return answer


async def finish(request_limits: RequestLimits[Any], steps: Steps[None]) -> None:
    """Count, or end, a request; also one that is cancelled meanwhile, where its store has to be awaited."""
    if request_limits.runtime.awaits:
        await run_to_the_end(steps)
    else:
        run(steps)


async def hold(request_limits: RequestLimits[Any], delay_us: int) -> None:
    """A rule that delays: wait for the request's place in the queue."""
    runtime = request_limits.runtime
    try:
        await runtime.timers.here().wait_until(runtime.clock.now_us() + delay_us)
    except BaseException:
        await run_awaiting(request_limits.release())
        raise


async def refuse_websocket(
    scope: Scope, receive: Receive, send: Send, answer: tuple[int, list[tuple[bytes, bytes]], bytes]
) -> None:
    """Before the handshake: an HTTP answer where the server can send one, else a close."""
    await receive()  # websocket.connect
    if "websocket.http.response" in (scope.get("extensions") or {}):
        status, headers, body = answer
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})


def read_scope(scope: Scope, proxies: Proxies | None) -> RequestView:
    """A scope of HTTP or of a websocket, as policies see it."""
    peer = scope.get("client")
    method = scope["method"].upper() if scope["type"] == "http" else "WEBSOCKET"
    view = RequestView(method, path_of(scope), ScopeHeaders(scope["headers"]), peer[0] if peer else None, proxies)
    view.query_string = scope.get("query_string", b"")
    if "user" in scope:
        view.user = _user_in(scope)
    return view


def path_of(scope: Scope) -> str:
    """The path as the app routes it: without the prefix that it is mounted at, or that a proxy has taken away."""
    path: str = scope["path"]
    root = scope.get("root_path")
    return below(path, root) if root else path


def _accept(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """What the client accepts, without reading anything else."""
    for name, value in headers:
        if name == b"accept":
            return value
    return None


async def _counting(request_limits: RequestLimits[bytes], message: Message, send: Send) -> None:
    """Count what the beginning of a response says, and send it: its fields tell what is left after that."""
    await finish(
        request_limits, request_limits.after(message["status"], ScopeHeaders(message.get("headers", ())).first)
    )
    await send(_telling(request_limits, message))


def _telling(request_limits: RequestLimits[bytes], message: Message) -> Message:
    """The beginning of a response with our fields; an app may send the same message every time."""
    fields = request_limits.fields
    if fields:
        return {**message, "headers": request_limits.responder.with_fields(message.get("headers", ()), fields)}
    if request_limits.denial is not None:
        return {**message, "headers": request_limits.denial.completed(message.get("headers", ()))}
    return message


async def _answer(send: Send, response: tuple[int, list[tuple[bytes, bytes]], bytes]) -> None:
    status, headers, body = response
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})  # some test clients insist on it


def _adding(responder: Responder[bytes], fields: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Say in the response how much is left."""
    if not fields:
        return send

    def answer(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":  # an app may send the same message every time
            message = {**message, "headers": responder.with_fields(message.get("headers", ()), fields)}
        return send(message)

    return answer


def _user_in(scope: Scope) -> str | None:
    """What an authentication middleware before this one has put into the scope."""
    user = scope.get("user")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    for attribute in ("identity", "username", "display_name"):
        with suppress(NotImplementedError):  # Starlette's own user has no identity, and says so
            name = getattr(user, attribute, None)
            if name:
                return str(name)
    return None


class ScopeHeaders(Mapping[str, list[str]]):
    """Header lines by lower-case name, read when the first of them is asked for."""

    __slots__ = ("_lines", "_raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._lines: dict[str, list[str]] | None = None

    def _read(self) -> dict[str, list[str]]:
        if self._lines is None:
            self._lines = {}
            for name, value in self._raw:
                self._lines.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return self._lines

    def first(self, name: str) -> str | None:
        """The first line of a header."""
        lines = self._read().get(name)
        return lines[0] if lines else None

    def __getitem__(self, name: str) -> list[str]:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
