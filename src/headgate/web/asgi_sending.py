"""Sending of responses and refusals over ASGI: with the fields of a decision, and with charges settled before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from headgate.engine import Decision
from headgate.policy.edges import FastPath
from headgate.steps import Steps, run, run_to_the_end
from headgate.web.asgi_requests import Scope, ScopeHeaders, accepted_in
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import Pairs, RawResponse, Responder

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
POLICY_VIOLATION: Final = 1008
"""The close code of a websocket that sent too many messages."""
TRY_AGAIN_LATER: Final = 1013
"""The close code of a websocket for which the server has no room now."""
BUSY: Final = 503
SWITCHED: Final = 101
"""The status of a websocket."""


async def finish(limits: RequestLimits[Any], steps: Steps[None]) -> None:
    """Run the last steps of a request; shielded from cancellation if its store has to be awaited."""
    if limits.runtime.awaits:
        await run_to_the_end(steps)
    else:
        run(steps)


async def refuse_websocket(scope: Scope, receive: Receive, send: Send, answer: RawResponse[bytes]) -> None:
    """Refuse before the handshake: with an HTTP response if the server can send one, else with a close."""
    await receive()  # websocket.connect
    if "websocket.http.response" in (scope.get("extensions") or {}):
        status, headers, body = answer
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
    else:
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER if answer[0] == BUSY else POLICY_VIOLATION})


async def counting(limits: RequestLimits[bytes], message: Message, send: Send) -> None:
    """Settle the charges by the start of a response, then send it with fields that show what is left."""
    headers = message.get("headers", ())
    await finish(limits, limits.after(message["status"], ScopeHeaders(headers).first))
    await send({**message, "headers": limits.with_fields(headers)})


async def answer_with(send: Send, response: RawResponse[bytes]) -> None:
    """Send a whole response."""
    status, headers, body = response
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})  # some test clients need `more_body`


async def refuse_fast(send: Send, shortcut: FastPath, decision: Decision, scope: Scope) -> None:
    """Answer a request that a fast path has refused."""
    await answer_with(send, shortcut.responder.refuse_fast(shortcut, decision, accepted_in(scope["headers"]), scope))


class ToldDecision(RequestDecision):
    """The decision of a fast path that the app sees, and that its response tells: one object does for both."""

    __slots__ = ("send",)

    send: Send | None

    def tell(self, message: Message) -> Awaitable[None]:
        """Send a message of the app; to the start of its response the fields of the decision are added."""
        if message["type"] == "http.response.start":  # an app may send the same message every time
            shortcut = self.shortcut
            message = {**message, "headers": shortcut.with_fields(message.get("headers", ()), self.decided)}
        return self.send(message)  # type: ignore[misc]


def telling(responder: Responder[bytes], fields: Pairs[bytes], send: Send) -> Send:
    """Add the fields of a decision to the response, for charges that no response changes."""
    if not fields:
        return send

    def answer(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":  # an app may send the same message every time
            message = {**message, "headers": responder.with_fields(message.get("headers", ()), fields)}
        return send(message)

    return answer
