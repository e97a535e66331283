"""Header fields tell what is left after everything that the response itself decides about the charge."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import LATER, asgi
from tests.support.stores import Slow

pytestmark = pytest.mark.engineless


FAILURES = {"name": "login", "key": "ip", "limits": "2/hour", "count": {"when": {"status": 401}}}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the status and the cost that the path says: /401, /200/30."""
    status, _, cost = scope["path"].strip("/").partition("/")
    headers = [(b"x-tokens", cost.encode())] if cost else []
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def test_a_store_that_is_awaited_is_asked_after_the_give_back():
    """The same in an event loop whose store takes its time."""
    limited = RateLimitMiddleware(app, {"rules": [FAILURES]}, store=Slow(MemoryStore(clock=ManualClock(LATER))))
    assert asgi(limited, "GET", "/200").fields["ratelimit"] == '"login";r=2;t=0'


def test_a_charge_that_stays_is_told_without_another_question():
    """Where the response changes nothing, nothing is asked again."""
    store = MemoryStore(clock=ManualClock(LATER))
    limited = RateLimitMiddleware(app, {"rules": [FAILURES]}, store=store)
    asked: list[Any] = []
    gate = limited.runtime._responder.compiled._gates[""]
    decide = gate.decide

    def noted(*calls: Any, **how: Any) -> Any:
        asked.append(how)
        return decide(*calls, **how)

    gate.decide = noted
    assert asgi(limited, "GET", "/401").fields["ratelimit"] == '"login";r=1;t=1800'
    assert asked == []
