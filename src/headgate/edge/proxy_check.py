"""`GET /check`: a proxy asks whether a request may pass, for nginx's auth_request and for forward authentication.

| the policy says | answer                                                                                       |
|-----------------|----------------------------------------------------------------------------------------------|
| pass            | 204, with the policy's header fields                                                         |
| refuse          | its status (429, or 400, 401, 403, 503), with Retry-After and a problem body                 |
|                 | with `?deny=403`: 403 in place of each but 401, and the status in `X-Headgate-Status`        |

A question that cannot be answered is neither: 421 for a peer that is no trusted proxy, 400 for one that does not tell
the original request. No proxy lets a request pass because of either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.edge.original_request import HOST, METHOD, METHOD_PATTERN, ONCE, URI, OriginalRequest, read_uri
from headgate.edge.responses import problem
from headgate.edge.runtime import EdgeRuntime
from headgate.policy import Proxies
from headgate.policy.edges import METHODS
from headgate.steps import run_awaiting
from headgate.web import RawResponse, RequestLimits, limits_of
from headgate.wording import log_of

MOST_PEERS: Final = 1024
MOST_CLIENTS: Final = 4096
LONGEST: Final = 256
"""The length up to which a line of forwarded addresses is read once."""
PASSED: Final = 204
ASKS: Final = b"deny=403"
"""The query of a proxy that takes every no but 401 and 403 for an error."""
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
MISDIRECTED: Final = 421
STATUS: Final = b"x-headgate-status"
KNOWN: Final = {method.encode(): method for method in METHODS}
_METHOD: Final = re.compile(METHOD_PATTERN.encode())

log = log_of("headgate.edge")


class ProxyCheck:
    """Rules on the requests that proxies tell of."""

    def __init__(self, runtime: EdgeRuntime, proxies: Proxies) -> None:
        self._runtime = runtime
        self._proxies = proxies
        self._limits = limits_of(runtime)
        self._header = proxies.header.encode("latin-1")
        self._client = lru_cache(MOST_CLIENTS)(self._found)
        self._trusted: ClearedWhenFull[str | None, bool] = ClearedWhenFull(MOST_PEERS, proxies.trusts)
        self._logged: set[str] = set()

    async def __call__(self, headers: list[tuple[bytes, bytes]], peer: str | None, query: bytes) -> RawResponse[bytes]:
        """Answer one question."""
        fields: Mapping[bytes, bytes] | None = dict(headers)
        if not self._trusted[peer] or (query and query != ASKS):
            return self._misasked(peer)
        if len(fields) != len(headers) and (fields := joined(headers)) is None:  # type: ignore[arg-type]
            return self._unclear("the proxy sends different lines of an X-Forwarded header; it must overwrite them")
        assert fields is not None  # noqa: S101 - for the type checker
        given, uri, line = fields.get(METHOD), fields.get(URI), fields.get(self._header)
        target = None if uri is None else read_uri(uri)
        if given is None or target is None or (given not in KNOWN and not _METHOD.fullmatch(given)):
            return self._unclear(
                "the proxy must send X-Forwarded-Method and X-Forwarded-Uri, the method and the target of the request"
            )
        method, (path, asked) = KNOWN.get(given) or given.decode("latin-1"), target
        client = self._client(peer, line) if line is None or len(line) <= LONGEST else self._found(peer, line)
        request = OriginalRequest(method, path, asked, headers, peer, self._proxies, fields.get(HOST))
        limits = self._limits()
        admitted = limits.admit(request, method, path, client, None, False if "/." in path else None)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if admitted:
            return PASSED, limits.fields, b""
        answer = refused(limits, fields.get(b"accept"))
        return for_nginx(answer) if query else answer

    def _found(self, peer: str | None, line: bytes | None) -> str | None:
        """Return the client behind a trusted peer that sends this line of addresses."""
        return self._proxies.client(peer, () if line is None else (line.decode("latin-1"),)) or peer

    def _misasked(self, peer: str | None) -> RawResponse[bytes]:
        if self._trusted[peer]:
            return problem(400, "the only parameter of /check is deny=403")
        where = f"the peer {peer}" if peer else "the peer of the unix socket"
        option = f"--trusted-proxy {peer or 'unix'}"
        return self._told(MISDIRECTED, f"{where} is not a trusted proxy: start the service with {option}")

    def _unclear(self, detail: str) -> RawResponse[bytes]:
        return self._told(400, detail)

    def _told(self, status: int, detail: str) -> RawResponse[bytes]:
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


def refused(limits: RequestLimits[bytes], accept: bytes | None) -> RawResponse[bytes]:
    """Return the refusal of a request; one that a rule would answer in place of the app is refused like others."""
    responder, outcome = limits.refused
    if outcome.kind == "shadow" and outcome.group is not None and outcome.decision is not None:
        return responder.refuse_by(outcome.group, outcome.decision, accept)
    return limits.refuse(accept)


def for_nginx(answer: RawResponse[bytes]) -> RawResponse[bytes]:
    """Return a refusal with a status that nginx takes for a refusal."""
    status, headers, body = answer
    told = UNAUTHORIZED if status == UNAUTHORIZED else FORBIDDEN
    return told, [*headers, (STATUS, b"%d" % status)], body
