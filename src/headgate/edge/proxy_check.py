"""`GET /check`: a proxy asks whether a request may pass, for nginx's auth_request and for forward authentication.

| the policy says | answer                                                                                       |
|-----------------|----------------------------------------------------------------------------------------------|
| pass            | 204, with the policy's header fields                                                         |
| refuse          | its status (429, or 400, 401, 403, 503), with Retry-After and a problem body                 |
|                 | with `?deny=403`: 403 in place of each but 401, and the status in `X-Headgate-Status`        |

A question that cannot be answered is neither: 421 for a peer that is no trusted proxy, 400 for one that does not tell
the original request. No proxy takes either for a yes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.edge.answers import problem
from headgate.edge.original_request import HOST, METHOD, METHOD_PATTERN, ONCE, URI, OriginalRequest, lines_of, read_uri
from headgate.edge.runtime import EdgeRuntime
from headgate.policy import Proxies
from headgate.policy.edges import METHODS
from headgate.steps import run_awaiting
from headgate.web import Answer, Clients, RequestLimits, limits_of
from headgate.wording import log_of

MOST_PEERS: Final = 1024
PASSED: Final = 204
ASKS: Final = b"deny=403"
"""The query of a proxy that takes every no but 401 and 403 for an error."""
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
MISDIRECTED: Final = 421
STATUS: Final = b"x-headgate-status"
KNOWN: Final = frozenset(method.encode() for method in METHODS)
_METHOD: Final = re.compile(METHOD_PATTERN.encode())

log = log_of("headgate.edge")


class ProxyCheck:
    """Rules on the requests that proxies tell of."""

    def __init__(self, runtime: EdgeRuntime, proxies: Proxies) -> None:
        self._runtime = runtime
        self._proxies = proxies
        self._limits = limits_of(runtime)
        self._clients = Clients(proxies, lines_of)
        self._trusted: ClearedWhenFull[str | None, bool] = ClearedWhenFull(MOST_PEERS, proxies.trusts)
        self._logged: set[str] = set()

    async def __call__(self, headers: list[tuple[bytes, bytes]], peer: str | None, query: bytes) -> Answer[bytes]:
        """Answer one question."""
        fields: Mapping[bytes, bytes] | None = dict(headers)
        if not self._trusted[peer] or (query and query != ASKS):
            return self._misasked(peer)
        if len(fields) != len(headers) and (fields := joined(headers)) is None:  # type: ignore[arg-type]
            return self._unclear("the proxy sends different lines of an X-Forwarded header; it must overwrite them")
        assert fields is not None  # noqa: S101 - for the type checker
        method, uri = fields.get(METHOD), fields.get(URI)
        target = None if uri is None else read_uri(uri)
        if method is None or target is None or (method not in KNOWN and not _METHOD.fullmatch(method)):
            return self._unclear(
                "the proxy must send X-Forwarded-Method and X-Forwarded-Uri, the method and the target of the request"
            )
        request = OriginalRequest(method.decode("latin-1"), target[0], target[1], headers, peer)
        request.proxies, request.host = self._proxies, fields.get(HOST)
        limits = self._limits()
        way = False if "/." in request.path else None
        admitted = limits.admit(request, request.method, request.path, self._clients(fields, peer), None, way)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if admitted:
            return PASSED, limits.fields, b""
        answer = refused(limits, fields.get(b"accept"))
        return for_nginx(answer) if query else answer

    def _misasked(self, peer: str | None) -> Answer[bytes]:
        if self._trusted[peer]:
            return problem(400, "the only parameter of /check is deny=403")
        where = f"the peer {peer}" if peer else "the peer of the unix socket"
        option = f"--trusted-proxy {peer or 'unix'}"
        return self._told(MISDIRECTED, f"{where} is not a trusted proxy: start the service with {option}")

    def _unclear(self, detail: str) -> Answer[bytes]:
        return self._told(400, detail)

    def _told(self, status: int, detail: str) -> Answer[bytes]:
        """Answer with a problem; log it once, since nginx tells its clients nothing of it."""
        if detail not in self._logged and len(self._logged) < MOST_PEERS:
            self._logged.add(detail)
            log.error("/check answers %d: %s", status, detail)
        return problem(status, detail)


def joined(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """Return headers by name, where some come in several lines; None if two of them name different requests."""
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        before = fields.get(name)
        if before is None:
            fields[name] = value
        elif name not in ONCE:
            fields[name] = b"%b, %b" % (before, value)
        elif before != value:
            return None
    return fields


def refused(limits: RequestLimits[bytes], accept: bytes | None) -> Answer[bytes]:
    """Return the refusal of a request; one that a rule would answer in place of the app is refused like others."""
    responder, outcome = limits.refused
    if outcome.kind == "shadow" and outcome.group is not None and outcome.decision is not None:
        return responder.refuse_by(outcome.group, outcome.decision, accept)
    return limits.refuse(accept)


def for_nginx(answer: Answer[bytes]) -> Answer[bytes]:
    """Return a refusal with a status that nginx takes for a no."""
    status, headers, body = answer
    told = UNAUTHORIZED if status == UNAUTHORIZED else FORBIDDEN
    return told, [*headers, (STATUS, b"%d" % status)], body
