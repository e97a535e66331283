"""Header fields tell what is left after everything that the response itself decides about the charge."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.flask import RateLimits
from headgate.web.wsgi import RateLimitMiddleware as WSGIMiddleware
from tests.support.edges import LATER, Answer, asgi, wsgi
from tests.support.stores import Slow

pytestmark = pytest.mark.engineless

Ask = Any
FAILURES = {"name": "login", "key": "ip", "limits": "2/hour", "count": {"when": {"status": 401}}}
TOKENS = {"name": "llm", "key": "ip", "limits": "100/hour", "cost": {"after": {"header": "x-tokens"}}}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the status and the cost that the path says: /401, /200/30."""
    status, _, cost = scope["path"].strip("/").partition("/")
    headers = [(b"x-tokens", cost.encode())] if cost else []
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    status, _, cost = environ["PATH_INFO"].strip("/").partition("/")
    start_response(f"{status} said", [("x-tokens", cost)] if cost else [])
    return []


def by_asgi(rule: dict[str, Any], store: Any) -> Ask:
    limited = RateLimitMiddleware(app, {"rules": [rule]}, store=store)
    return lambda path: asgi(limited, "GET", path)


def by_wsgi(rule: dict[str, Any], store: Any) -> Ask:
    limited = WSGIMiddleware(wsgi_app, {"rules": [rule]}, store=store)
    return lambda path: wsgi(limited, "GET", path)


def by_flask(rule: dict[str, Any], store: Any) -> Ask:
    site = Flask("site")
    RateLimits(site, {"rules": [rule]}, store=store)
    site.add_url_rule("/<int:status>", view_func=lambda status: ("", status), endpoint="plain")
    site.add_url_rule("/<int:status>/<cost>", view_func=lambda status, cost: ("", status, {"x-tokens": cost}))
    client = site.test_client()

    def ask(path: str) -> Answer:
        answer = client.get(path)
        return Answer(answer.status_code, list(answer.headers.items()), answer.data)

    return ask


@pytest.fixture(params=[by_asgi, by_wsgi, by_flask])
def limited(request):
    return lambda rule: request.param(rule, MemoryStore(clock=ManualClock(LATER)))


def test_what_does_not_count_is_not_told_as_spent(limited):
    """Good logins say that both attempts are left; each bad one says one less, and then the next is refused."""
    ask = limited(FAILURES)
    paths = ["/200", "/200", "/401", "/200", "/401"]
    assert [ask(path).fields["ratelimit"] for path in paths] == [
        '"login";r=2;t=0', '"login";r=2;t=0', '"login";r=1;t=1800', '"login";r=1;t=1800', '"login";r=0;t=3600',
    ]  # fmt: skip
    assert ask("/200").status == 429


def test_what_cost_more_is_told_as_spent(limited):
    """A response that says its cost tells what is left after that cost."""
    ask = limited(TOKENS)
    assert ask("/200/30").fields["ratelimit"] == '"llm";r=70;t=1080'
    assert ask("/200/70").fields["ratelimit"] == '"llm";r=0;t=3600'
    assert ask("/200/1").status == 429


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
