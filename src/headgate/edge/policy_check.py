"""Questions to the policy: a request that the caller describes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.clock import SECOND
from headgate.edge.original_request import Headers, OriginalRequest, read_uri
from headgate.edge.proxy_check import PASSED, refused
from headgate.edge.runtime import EdgeRuntime
from headgate.steps import Steps, run_awaiting
from headgate.web import RequestLimits, plain_fields

OF_A_BODY: Final = (b"content-type", b"content-length")


class AskedLimits(RequestLimits[bytes]):
    """The limits of a request that the caller holds back itself, if a rule says so."""

    delay_us = 0

    def hold_back(self, delay_us: int) -> Steps[None]:
        """Note for how long the caller must hold the request."""
        self.delay_us = delay_us
        yield from ()


class PolicyCheck:
    """Asks the policy."""

    def __init__(self, runtime: EdgeRuntime) -> None:
        self._limits = type("AskedLimits", (AskedLimits,), {"runtime": runtime})

    def question(
        self,
        method: str = "GET",
        path: str = "/",
        ip: str | None = None,
        headers: Headers | None = None,
        user: str | None = None,
        plan: str | None = None,
    ) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Return a function that decides."""
        where, query = read_uri(path.encode()) or ("/", b"")
        request = OriginalRequest(method.upper(), where, query, headers or [], ip)
        request.user, request.plan = user, plan

        async def decide() -> dict[str, Any]:
            limits: AskedLimits = self._limits()
            shortcut = False if "/." in request.path else None  # a path with dots is read: proxies differ in them
            admitted = limits.admit(request, request.method, request.path, ip, None, shortcut)
            if not isinstance(admitted, bool):
                admitted = await run_awaiting(admitted)
            return _passed(limits) if admitted else _refused(limits)

        return decide


def _passed(limits: AskedLimits) -> dict[str, Any]:
    decision = rule = None
    if limits.fast:
        fast, decision = limits.fast
        rule = fast.group.owner(decision)
    elif limits.admitted:
        _, outcome = limits.admitted[0]
        decision, rule = outcome.decision, outcome.rule
    return {
        **plain_fields(decision),
        "status": PASSED,
        "rule": rule and rule.name,
        "delay": limits.delay_us / SECOND,
        "marks": [rule.name for _, outcome in limits.outcomes() for rule, _ in outcome.marked],
        "headers": _fields(limits.fields),
        "detail": None,
    }


def _refused(limits: AskedLimits) -> dict[str, Any]:
    _, outcome = limits.refused
    status, headers, _ = refused(limits, None)
    return {
        **plain_fields(outcome.decision),
        "allowed": False,
        "status": status,
        "rule": outcome.rule and outcome.rule.name,
        "delay": 0.0,
        "marks": [],
        "headers": _fields(headers),
        "detail": outcome.detail or None,
    }


def _fields(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the header fields for the response to the client."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name not in OF_A_BODY}
