"""ASGI: one line in front of Starlette, FastAPI, Litestar, Quart, Django or any other ASGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, Unpack

from headgate.engine import Entry
from headgate.policy import RequestView
from headgate.policy.edges import FastPath
from headgate.steps import run_awaiting
from headgate.web.asgi_requests import SCOPES, Scope, accepted_in, path_of
from headgate.web.asgi_sending import (
    POLICY_VIOLATION,
    SWITCHED,
    Message,
    Receive,
    Send,
    ToldDecision,
    answer_with,
    counting,
    finish,
    refuse_fast,
    refuse_websocket,
    telling,
)
from headgate.web.edge import Edge
from headgate.web.options import Options, PolicyGiven, WebOptions
from headgate.web.request_decision import RequestDecision, decision_of
from headgate.web.request_limits import RequestLimits, limits_of
from headgate.web.responder import RAISED
from headgate.web.runtime import Runtime
from headgate.web.unmatched_rules import routes_below

App = Callable[[Scope, Receive, Send], Awaitable[None]]
RATE_LIMIT: Final = "rate_limit"
"""The key in a scope's state under which the app finds the decision about the request."""
REQUEST_LIMITS: Final = "headgate"
"""The key in a scope under which endpoints find the limits of the request."""


class RateLimitMiddleware(Edge[bytes]):
    """A policy in front of an ASGI app: HTTP, websockets and, where a rule says so, their messages.

    `policy` is a file, a mapping or a `Policy`. Without a `user` function, the user is the one that an authentication
    middleware has put into the scope.
    """

    endpoints: ClassVar[bool] = False
    """Whether endpoints may have limits of their own; they find the request's limits in the scope."""

    def __init__(self, app: App, policy: PolicyGiven | None, **options: Unpack[Options]) -> None:
        self.app = app
        self._runtime: Runtime[bytes] = Runtime(policy, SCOPES, WebOptions(**options), awaited=True)
        self._runtime.routes = lambda: routes_below(self.app)
        self._limits = limits_of(self._runtime)
        self._decision = decision_of(self._limits, RequestDecision)
        self._told = decision_of(self._limits, ToldDecision)
        self._without_limits = self._decision()
        """The decision about requests that no limit applies to."""
        self._fronted = policy is not None
        self._decides = self._fronted and not self.endpoints
        """Whether a request may be decided on at once, so that no limits of it have to be kept."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection of any kind."""
        if scope["type"] != "http":
            await self._other(scope["type"], scope, receive, send)
            return
        runtime, view = self._runtime, None
        try:
            path = path_of(scope) if scope["root_path"] else scope["path"]
        except KeyError:  # servers may leave it out, and few do
            path = scope["path"]
        if not self._decides or (shortcuts := runtime.front) is None:
            view = runtime.look(scope) if runtime.looks else None
            if not self._decides:
                await self._admit(scope, receive, send, path, view)
                return
            shortcuts = runtime.fast_paths
            if runtime.entrances is not None:  # there is a load shedder
                entry, shortcut = runtime.entrances[scope["method"]][path]
                if entry is not None and not isinstance(shortcut, bool):
                    await self._enter(scope, receive, send, path, view, entry, shortcut)
                    return
                if entry is not None and (place := entry.enter()) is not None:  # here, since a call costs as much
                    try:
                        scope.setdefault("state", {})["rate_limit"] = self._without_limits
                        await self.app(scope, receive, send)
                    finally:
                        entry.leave(place, True)
                    return
        shortcut = shortcuts[scope["method"]][path]
        if shortcut is True:  # no rule applies
            state = scope["state"] if "state" in scope else scope.setdefault("state", {})
            state["rate_limit"] = self._without_limits
            await self.app(scope, receive, send)
        elif shortcut is False or not await self._go(scope, receive, send, shortcut, view):
            await self._admit(scope, receive, send, path, view)

    async def _enter(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: str,
        view: RequestView | None,
        entry: Entry,
        shortcut: FastPath,
    ) -> None:
        """Handle a request that rules apply to, behind a load shedder whose place it takes if no request waits."""
        is_done = False
        if (place := entry.enter()) is not None:
            is_done = True  # also if the app raises
            try:
                is_done = await self._go(scope, receive, send, shortcut, view)
            finally:
                entry.leave(place, is_done)
        if not is_done:
            await self._admit(scope, receive, send, path, view)

    async def _go(
        self, scope: Scope, receive: Receive, send: Send, shortcut: FastPath, view: RequestView | None
    ) -> bool:
        """Decide on a request at once, so that no limits of it have to be kept; False if it takes the steps."""
        runtime = self._runtime
        if shortcut.by_address:
            peer = client[0] if (client := scope.get("client")) else None  # as `_peer_of`, without a call
            decision = shortcut.decide(peer) if runtime.clients is None else shortcut.decide_request(scope, peer)
        else:
            decision = shortcut.decide_by(view or runtime.view(scope))
        if decision is None:
            return False
        if not decision.allowed:
            await refuse_fast(send, shortcut, decision, scope)
            return True
        seen = self._told()
        seen.shortcut, seen.decided, seen.send = shortcut, decision, send
        state = scope["state"] if "state" in scope else scope.setdefault("state", {})
        state["rate_limit"] = seen
        try:
            await self.app(scope, receive, seen.tell if shortcut.writes_fields else send)
        finally:
            seen.send = None  # it refers to the scope, and the scope to the decision
        return True

    async def _admit(self, scope: Scope, receive: Receive, send: Send, path: str, view: RequestView | None) -> None:
        """Decide on a request whose limits have to be kept."""
        limits = self._limits()
        if not self._fronted:
            await self._pass(scope, receive, send, limits)
            return
        limits.view = view
        shortcut = self._runtime.fast_paths[scope["method"]][path] if self.endpoints else False
        peer = client[0] if (client := scope.get("client")) else None
        admitted = limits.admit(scope, scope["method"], path, peer, None, shortcut)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            await answer_with(send, limits.refuse(accepted_in(scope["headers"])))
        elif self.endpoints or limits.follows or self._runtime.awaits:  # the app may settle what it was charged
            await self._pass(scope, receive, send, limits)
        else:
            self._show(scope, limits)
            await self.app(scope, receive, telling(limits.responder, limits.fields, send))

    def _show(self, scope: Scope, limits: RequestLimits[bytes]) -> None:
        """Let the app read the decision, as `request.state.rate_limit`."""
        seen = scope.setdefault("state", {})[RATE_LIMIT] = self._decision()
        seen.limits = limits

    async def _pass(self, scope: Scope, receive: Receive, send: Send, limits: RequestLimits[bytes]) -> None:
        """Call the app; add the header fields to its response, and settle the charges by it."""
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started or message["type"] != "http.response.start":
                return send(message)
            started = True
            if limits.charged:
                return counting(limits, message, send)
            if limits.permit is not None:
                limits.started(message["status"])
                if limits.fast is None and limits.denial is None:  # no rule has anything to tell
                    return send(message)
            return send({**message, "headers": limits.with_fields(message.get("headers", ()))})

        seen = scope.setdefault("state", {})[RATE_LIMIT] = self._decision()
        seen.limits = limits
        if self.endpoints:
            limits.path, limits.view = path_of(scope), None
            scope[REQUEST_LIMITS] = limits
        try:
            await self.app(scope, receive, answer)
        except RAISED as no:
            if started or not self.endpoints:
                raise
            await answer_with(answer, limits.deny_for(no, accepted_in(scope["headers"]), scope))
        finally:
            limits.connection = None  # it refers to the scope, and the scope to the limits
            if limits.permit is not None:
                limits.let_go()
            if self._runtime.awaits:
                limits.over()
            if limits.follows:  # a permit is held, or no response was sent
                await finish(limits, limits.end())

    async def _other(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == "websocket":
            await self._websocket(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime, limits = self._runtime, self._limits()
        if runtime.looks:
            limits.view = runtime.look(scope)
        path, counts = path_of(scope), self.endpoints or runtime.responder_now.counts_messages
        admitted = limits.admit(scope, "WEBSOCKET", path, _peer_of(scope))
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            accept = b", ".join(value for name, value in scope["headers"] if name.lower() == b"accept")
            await refuse_websocket(scope, receive, send, limits.refuse(accept or None))
            return
        limits.take_no_sample()  # a websocket may stay open for days
        limits.path, limits.view = path, None
        self._show(scope, limits)
        if self.endpoints:
            scope[REQUEST_LIMITS] = limits
        try:
            await self.app(scope, self._counting_messages(scope, receive, send, limits) if counts else receive, send)
        finally:
            limits.connection = None
            if self._runtime.awaits:
                limits.over()
            await finish(limits, limits.end(SWITCHED))

    def _counting_messages(self, scope: Scope, receive: Receive, send: Send, opened: RequestLimits[bytes]) -> Receive:
        """Count each message that arrives; close the connection of a client that sends too many."""

        async def counted() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or await self._admit_message(scope, opened):
                return message
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "rate limited"})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

        return counted

    async def _admit_message(self, scope: Scope, opened: RequestLimits[bytes]) -> bool:
        """Decide on one message of an open connection, by the policy and by the limits of its endpoint."""
        limits, peer, path = self._limits(), _peer_of(scope), opened.path or "/"
        limits.path, limits.connection = path, opened.connection
        for where, each in ((path, None), (opened.messages_route, opened.messages)):
            if each != ():
                admitted = limits.admit(scope, "MESSAGE", where, peer, each)
                if not isinstance(admitted, bool):
                    admitted = await run_awaiting(admitted)
                if not admitted:
                    return False
        await run_awaiting(limits.release())  # a message is in flight until the app gets it
        return True

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close the stores when the app has shut down; for an app that knows no lifespan, when the server tells it."""
        knows = False

        async def get() -> Message:
            nonlocal knows
            knows = True
            return await receive()

        async def answer(message: Message) -> None:
            nonlocal knows
            knows = True
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self.aclose()
            await send(message)

        try:
            await self.app(scope, get, answer)
        except Exception:  # so an app tells that it knows no lifespan
            if knows:
                raise
        if not knows:
            for moment in ("startup", "shutdown"):
                await receive()
                await answer({"type": f"lifespan.{moment}.complete"})


def _peer_of(scope: Scope) -> str | None:
    peer = scope.get("client")
    return peer[0] if peer else None
