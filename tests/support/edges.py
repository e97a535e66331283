"""Requests for tests: to a compiled policy, to an ASGI app and to a WSGI app; no server, no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headgate import MemoryStore
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.outcome import Outcome
from headgate.policy.settling import settle
from headgate.steps import run
from headgate.stores.gate import Gate
from headgate.testing import ManualClock

LATER = 1_000_000_000.0
PEER = "203.0.113.9"


def still() -> MemoryStore:
    """A store in memory, by a clock that stands still."""
    return MemoryStore(clock=ManualClock(LATER))


def view(
    method: str = "GET",
    path: str = "/",
    headers: Mapping[str, str | list[str]] | None = None,
    peer: str | None = PEER,
    trusted: Iterable[str] = (),
    **known: Any,
) -> RequestView:
    """A request as policies see it."""
    lines = {name: [value] if isinstance(value, str) else value for name, value in (headers or {}).items()}
    proxies = Proxies(list(trusted)) if trusted else None
    seen = RequestView(method, path, lines, peer, proxies)
    for name, value in known.items():
        setattr(seen, name, value)
    return seen


EVERYTHING = [
    "ip", "user", "host", "method", "path", "route", {"header": "x-key"}, {"cookie": "a"}, {"query": "q"},
    {"trusted_header": "x-plan"}, {"param": "rest"}, {"claim": "sub"},
]  # fmt: skip


def of_everything(limit: int) -> dict[str, Any]:
    """A policy that looks at every part of a request."""
    one_of = [{"not": {"host": "*.x"}}, {"cookie": {"a": "b"}}, {"query": {"q": True}}, {"ip": "10.0.0.0/8"}]
    match = {"path": ["/{rest:path}", "**"], "any": one_of}
    rule = {"name": "api", "key": EVERYTHING, "limits": f"{limit}/minute", "match": match}
    return {"rules": [rule], "plan": {"trusted_header": "x-plan"}}


class Responder:
    """A compiled policy by a clock that stands still."""

    def __init__(self, policy: Any, **stores: Any) -> None:
        self.clock = ManualClock(LATER)
        self.store = MemoryStore(clock=self.clock)
        self.stores: dict[str, Any] = {"": self.store, **stores}
        self.compiled = CompiledPolicy(Policy.load(policy), self.stores, awaited=False)

    def ask(self, method: str = "GET", path: str = "/", **known: Any) -> Outcome:
        """Before the app."""
        return run(self.compiled.before(view(method, path, **known)))

    def answer(self, outcome: Outcome, status: int = 200, **headers: str) -> None:
        """After the app."""
        for charge in outcome.charges:
            if charge.group.follows:
                run(settle(charge, None, status, lambda name: headers.get(name.replace("-", "_"))))

    def kinds(self, times: int, *request: Any, **known: Any) -> list[str]:
        """The same request again and again."""
        return [self.ask(*request, **known).kind for _ in range(times)]

    def left(self, rule: int = 0, store: str = "", key: str = PEER) -> int:
        """What is left of a rule's first limit."""
        return self.left_of(rule, 0, store, key)

    def left_of(self, rule: int, at: int, store: str = "", key: str = PEER) -> int:
        """What is left of one of a rule's limits."""
        limit = self.compiled.policy.rules[rule].limits_for(view())[at]
        return int(Gate(self.stores[store], "policy", (limit,)).peek(key, 0).remaining)

    def wait(self, *request: Any, **known: Any) -> float:
        """How long a request that is refused has to wait."""
        outcome = self.ask(*request, **known)
        assert outcome.kind == "deny" and outcome.decision is not None
        return outcome.decision.retry_after


def responder(*rules: dict[str, Any], **more: Any) -> Responder:
    """A compiled policy over rules that count by address, two a minute, unless they say otherwise."""
    stores = more.pop("at", {})
    given = [{"key": "ip", "limits": "2/minute", **rule} for rule in rules or ({},)]
    return Responder({"rules": given, "stores": dict.fromkeys(stores, "memory://"), **more}, **stores)


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """Headers by their name in lower case; none of them comes twice."""
        found = {name.lower(): value for name, value in self.headers}
        assert len(found) == len(self.headers)
        return found


def scope(
    method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """An ASGI scope of HTTP."""
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    base = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw, "client": (PEER, 4711)}
    return {**base, **more}


async def plain(given: Any, receive: Any, send: Any) -> None:
    """An ASGI app that always answers 200."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def plain_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    """A WSGI app that always answers 200."""
    start_response("200 OK", [])
    return [b""]


async def exchange(app: Any, given: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything an ASGI app sends that receives these messages."""
    waiting, sent = list(messages), []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await app(given, receive, send)
    return sent


def read_answer(sent: list[dict[str, Any]]) -> Answer:
    """The response in what an ASGI app sent."""
    start, *rest = sent
    assert start["type"] == "http.response.start"
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in rest))


async def get(app: Any, *request: Any, **more: Any) -> Answer:
    """One request to an ASGI app."""
    body = {"type": "http.request", "body": b"", "more_body": False}
    return read_answer(await exchange(app, scope(*request, **more), body))


def asgi(app: Any, *request: Any, **more: Any) -> Answer:
    """One request to an ASGI app, in an event loop of its own."""
    return asyncio.run(get(app, *request, **more))


def environ(
    method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """What a WSGI server hands over."""
    fields = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in (headers or {}).items()}
    return {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "REMOTE_ADDR": PEER, **fields, **more}


def wsgi(app: Callable[..., Iterable[bytes]], *request: Any, **more: Any) -> Answer:
    """One request to a WSGI app."""
    started: list[tuple[str, list[tuple[str, str]]]] = []
    written: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], None]:
        started.append((status, headers))
        return written.append

    parts = app(environ(*request, **more), start_response)
    try:
        body = b"".join(parts)
    finally:
        if hasattr(parts, "close"):
            parts.close()
    status, headers = started[-1]
    return Answer(int(status.split(" ")[0]), headers, b"".join(written) + body)
