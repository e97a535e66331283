"""The ASGI app of the service: its paths, its token, and whether it is ready."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.edge.json_check import MOST_BYTES, JsonCheck, read_body
from headgate.edge.openapi import document
from headgate.edge.proxy_check import ProxyCheck
from headgate.edge.responses import as_json, problem
from headgate.web import RawResponse

if TYPE_CHECKING:
    from headgate.edge.envoy import EnvoyLimits

Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = Any
TOKEN: Final = b"x-headgate-token"
"""Not `Authorization`: that is the original request's, on which rules may count."""
CLOSE: Final = (b"connection", b"close")
UNAUTHORIZED: Final = 401


class App:
    """Answers the questions of proxies and programs."""

    def __init__(
        self,
        check: ProxyCheck | None,
        questions: JsonCheck,
        tokens: Sequence[bytes] = (),
        envoy: EnvoyLimits | None = None,
    ) -> None:
        self._check = check
        self._open_check = None if tokens else check
        """The answer to most questions: of a proxy, and without a token."""
        self._questions = questions
        self._tokens = tokens
        self.envoy = envoy
        self._document = as_json(document(check is not None, bool(tokens)))
        self.drains = False
        """Whether the process ends soon: it is not ready any more, and closes connections after each answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._open_check is not None and scope["path"] == "/check" and scope["method"] == "GET":
            peer = scope["client"]
            found = self._open_check(scope["headers"], peer[0] if peer else None, scope["query_string"])
        else:
            found = self._answer(scope, receive)
        status, headers, body = await found
        if self.drains:
            headers = [*headers, CLOSE]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> RawResponse[bytes]:
        path, method, headers = scope["path"], scope["method"], scope["headers"]
        if path == "/healthz":
            return _only("GET", method) or as_json({"status": "ok"})
        if path == "/readyz":
            return _only("GET", method) or self._readiness()
        if self._tokens and not self._has_token(headers):
            return problem(UNAUTHORIZED, "send the service's token in the header X-Headgate-Token")
        if path == "/check" and self._check is not None:
            peer = scope["client"]
            wrong = _only("GET", method)
            return wrong or await self._check(headers, peer[0] if peer else None, scope["query_string"])
        if path == "/v1/check":
            return _only("POST", method) or await self._questions(receive)
        if path == "/json" and self.envoy is not None:
            return _only("POST", method) or await _for_envoy(self.envoy, receive)
        if path == "/openapi.json":
            return _only("GET", method) or self._document
        return problem(404, "this service has no such path")

    def _readiness(self) -> RawResponse[bytes]:
        return as_json({"status": "draining"}, 503) if self.drains else as_json({"status": "ready"})

    def _has_token(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == TOKEN]
        return len(given) == 1 and any(hmac.compare_digest(given[0], token) for token in self._tokens)


async def _for_envoy(limits: EnvoyLimits, receive: Receive) -> RawResponse[bytes]:
    body = await read_body(receive)
    return problem(413, f"send at most {MOST_BYTES} bytes") if body is None else await limits.json(body)


def _only(wanted: str, method: str) -> RawResponse[bytes] | None:
    """Return the refusal of another method than the one that a path has."""
    if method == wanted:
        return None
    status, headers, body = problem(405, f"send a {wanted} request")
    return status, [*headers, (b"allow", wanted.encode())], body
