"""ASGI: one line in front of Starlette, FastAPI, Litestar, Quart, Django or any other ASGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

from headgate.policy import RequestView
from headgate.policy.judge import Judge, Ruling, run, run_awaiting
from headgate.stores import Store
from headgate.web.door import Court, Door, PolicyGiven
from headgate.web.headers import ASGI
from headgate.web.refusal import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
FAILED: Final = 500
POLICY_VIOLATION: Final = 1008
"""The code with which a websocket is closed that sent too much."""


class RateLimitMiddleware:
    """A policy in front of an ASGI app: HTTP, websockets and, where a rule says so, their messages.

    `policy` is a file, a mapping or a `Policy`; `store` a URL or a store. `trusted_proxies` are networks whose
    forwarded headers are believed (`proxy_hops` instead, where only their number is known). `user` and `claims` take
    the scope and say who it is, for keys and plans; without them, what an authentication middleware has put there is
    used. `plan` takes the request's view. `refusal` says what a no looks like.
    """

    def __init__(
        self,
        app: App,
        policy: PolicyGiven,
        *,
        store: Store | str | None = None,
        trusted_proxies: Sequence[str] = (),
        proxy_hops: int = 0,
        forwarded_header: str = "x-forwarded-for",
        user: Callable[[Scope], str | None] | None = None,
        plan: Callable[[RequestView], str | None] | None = None,
        claims: Callable[[Scope], Mapping[str, Any] | None] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self.app = app
        self.door = Door(
            policy, ASGI, awaited=True, store=store, trusted_proxies=trusted_proxies, proxy_hops=proxy_hops,
            forwarded_header=forwarded_header, plan=plan, refusal=refusal,
        )  # fmt: skip
        self._user = user
        self._claims = claims

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any kind."""
        kind = scope["type"]
        if kind == "websocket":
            await self._websocket(scope, receive, send)
            return
        if kind != "http":
            await self.app(scope, receive, self._closing(send) if kind == "lifespan" else send)
            return
        view = self._view(scope, scope["method"])
        court = self.door.court(view)
        judge = court.judge
        steps = judge.before(view)
        ruling = await run_awaiting(steps) if judge.awaits else run(steps)
        if ruling.kind != "pass":
            status, headers, body = court.refuse(ruling, _accept(scope["headers"]))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        elif ruling.charges:
            await self._hold(judge, ruling)
            await self._count(scope, receive, _adding(court, ruling, send), judge, ruling)
        elif ruling.group is not None:
            await self.app(scope, receive, _adding(court, ruling, send))
        else:
            await self.app(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send, judge: Judge, ruling: Ruling) -> None:
        """Call the app, and count what its response says."""
        counted = False

        async def answer(message: Message) -> None:
            nonlocal counted
            await send(message)
            if not counted and message["type"] == "http.response.start":
                counted = True
                headers = _Headers(message.get("headers", ()))
                await run_awaiting(judge.after(ruling, message["status"], headers.first))

        try:
            await self.app(scope, receive, answer)
        finally:
            if not counted:  # it raised, or went away without an answer
                await run_awaiting(judge.after(ruling, FAILED, lambda name: None))

    async def _hold(self, judge: Judge, ruling: Ruling) -> None:
        """A rule that delays: wait for the request's place in the queue."""
        if ruling.delay_us:
            try:
                await self.door.alarms.here().wait_until(self.door.clock.now_us() + ruling.delay_us)
            except BaseException:
                await run_awaiting(judge.release(ruling))
                raise

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        view = self._view(scope, "WEBSOCKET")
        court = self.door.court(view)
        judge = court.judge
        ruling = await run_awaiting(judge.before(view))
        if ruling.kind != "pass":
            await self._refuse_websocket(scope, receive, send, court.refuse(ruling, view.header("accept")))
            return
        await self._hold(judge, ruling)
        limited = self._limit_messages(scope, receive, send) if self.door.counts_messages else receive
        try:
            await self.app(scope, limited, send)
        finally:
            await run_awaiting(judge.after(ruling, 101, lambda name: None))

    async def _refuse_websocket(
        self, scope: Scope, receive: Receive, send: Send, answer: tuple[int, list[tuple[bytes, bytes]], bytes]
    ) -> None:
        """Before the handshake: an HTTP answer where the server can send one, else a close."""
        await receive()  # websocket.connect
        if "websocket.http.response" in (scope.get("extensions") or {}):
            status, headers, body = answer
            await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    def _limit_messages(self, scope: Scope, receive: Receive, send: Send) -> Receive:
        """Count each message that arrives; the connection of one that sends too many is closed."""

        async def counted() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            view = self._view(scope, "MESSAGE")
            judge = self.door.court(view).judge
            ruling = await run_awaiting(judge.before(view))
            if ruling.kind == "pass":
                await self._hold(judge, ruling)
                return message
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "rate limited"})
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

        return counted

    def _closing(self, send: Send) -> Send:
        """Close the stores when the app has shut down."""

        async def answer(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self.door.aclose()
            await send(message)

        return answer

    def _view(self, scope: Scope, method: str) -> RequestView:
        peer = scope.get("client")
        view = RequestView(
            method, scope["path"], _Headers(scope["headers"]), peer[0] if peer else None, self.door.proxies
        )
        view.query_string = scope.get("query_string", b"")
        if self._user is not None:
            view.user = self._user(scope)
        elif "user" in scope:
            view.user = _user_in(scope)
        if self._claims is not None:
            view.claims = self._claims(scope)
        return view


def _accept(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """What the client accepts, without reading anything else."""
    for name, value in headers:
        if name == b"accept":
            return value
    return None


def _adding(court: Court[bytes], ruling: Ruling, send: Send) -> Send:
    """Say in the response how much is left."""
    fields = court.fields(ruling)
    if not fields:
        return send

    def answer(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":  # an app may send the same message every time
            message = {**message, "headers": court.with_fields(message.get("headers", ()), fields)}
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


class _Headers(Mapping[str, list[str]]):
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
