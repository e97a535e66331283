"""The decision that endpoints see: where only one framework has a place for it, and with a store that is awaited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from flask import Flask, g
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from headgate import InvalidCall, MemoryStore
from headgate.testing import ManualClock
from headgate.testing.edges import Asked, Reply
from headgate.web import flask
from headgate.web.fastapi import RateLimits, RequestDecision, exempt, limit
from headgate.web.starlette import RateLimitMiddleware
from tests.support.adapters.bare import AsgiSuite
from tests.support.edges import LATER, Responder, asgi, plain, still
from tests.support.grpc_servers import every_server, serving
from tests.support.stores import Slow
from tests.web.test_edges import EDGES

pytestmark = pytest.mark.engineless

OfWide = Annotated[RequestDecision, Depends(limit("50/hour"))]
OfNarrow = Annotated[RequestDecision, Depends(limit("5/hour"))]
COSTLY = {"limits": "100/hour by fixed-window", "cost": 10}


@pytest.mark.parametrize("edge", [AsgiSuite, *EDGES])
@pytest.mark.parametrize("streams", [False, True])
def test_a_cost_is_settled_in_a_store_that_is_awaited(edge, streams, server):
    """An endpoint tells the cost without an await; it is charged before the client has the whole response."""

    def handle(asked: Asked) -> Reply:
        def pieces() -> Iterator[bytes]:
            yield b"a"
            asked.rate_limit.settle(api=3)

        body = pieces()
        return Reply(body=body if streams else b"".join(body))

    where = edge.places[-1]
    with edge().limiting(where, COSTLY, handle=handle, store=f"{server.url}?deadline=5") as site:
        assert site.codes(times=2) == [200, 200]
        told = site.told()
    assert told.split(";")[1] == ("r=84" if streams else "r=91")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_cost_is_settled_once_also_in_a_store_that_is_awaited(awaited):
    """The first cost that an app tells of a limit counts, and one that it tells later does not."""
    clocked = still()
    store = Slow(clocked) if awaited else clocked

    async def told_twice(given: Any, receive: Any, send: Any) -> None:
        given["state"]["rate_limit"].settle(api=3)
        given["state"]["rate_limit"].settle(api=7)
        await plain(given, receive, send)

    app = RateLimitMiddleware(told_twice, {"rules": [{"name": "api", "key": "ip", **COSTLY}]}, store=store)
    assert [asgi(app).fields["ratelimit"].split(";")[1] for _ in range(2)] == ["r=97", "r=94"]


@pytest.mark.parametrize("awaited", [False, True])
def test_the_cost_that_an_app_tells_is_not_corrected_by_its_response(awaited):
    """A response that would not count at all, or at another cost, leaves what the app has told of the limit."""

    async def told(given: Any, receive: Any, send: Any) -> None:
        given["state"]["rate_limit"].settle(api=3)
        await plain(given, receive, send)

    for more in ({"count": {"when": {"status": 401}}}, {"cost": {"default": 10, "after": {"status": {200: 7}}}}):
        store = Slow(still()) if awaited else still()
        app = RateLimitMiddleware(told, {"rules": [{"name": "api", "key": "ip", **COSTLY, **more}]}, store=store)
        left = [asgi(app).fields["ratelimit"].split(";")[1] for _ in range(2)]
        assert left == ["r=97", "r=94"], more


def api(**options: Any) -> tuple[FastAPI, ManualClock]:
    """An app by a clock that stands still."""
    app, clock = FastAPI(), ManualClock(LATER)
    RateLimits(app, store=MemoryStore(clock=clock), **options)
    return app, clock


def test_a_dependency_returns_its_own_decision():
    """Each dependency has the numbers of its own limit; the state of the request has those of the tightest."""
    app, _ = api(policy={"rules": [{"name": "front", "key": "ip", "limits": "100/hour"}]})

    @app.get("/")
    def read(request: Request, one: OfWide, two: OfNarrow) -> list[Any]:
        every = request.state.rate_limit
        return [one.remaining, two.remaining, two.limit, every.remaining, len(two.as_dict()["calls"])]

    assert [TestClient(app).get("/").json() for _ in range(2)] == [[49, 4, 5, 4, 1], [48, 3, 5, 3, 1]]


def test_a_cost_without_a_name_is_an_error():
    """A request may be charged to several limits, so the name says which cost is meant."""
    app, _ = api(policy={"rules": [{"name": "tokens", "key": "ip", "limits": "100/hour"}]})

    @app.get("/")
    def read(request: Request) -> str:
        with pytest.raises(InvalidCall) as error:
            request.state.rate_limit.settle(431)
        return str(error.value)

    told = "settle needs the name of a rule or a limit, as in settle(tokens=431); got 431"
    assert TestClient(app).get("/").json() == told


def test_a_dependency_of_an_exempt_endpoint_returns_a_decision_without_numbers():
    """The endpoint need not know that it is exempt."""
    app, _ = api()

    @app.get("/")
    @exempt
    def read(mine: Annotated[Any, Depends(limit("1/hour"))]) -> list[Any]:
        return [bool(mine), mine.remaining]

    assert [TestClient(app).get("/").json() for _ in range(2)] == [[True, None]] * 2


def test_a_dependency_settles_its_own_limit():
    """The names of its limits are known there too."""
    app, _ = api()

    @app.get("/")
    def read(mine: Annotated[Any, Depends(limit("10/hour as requests; 1000/hour as tokens", cost=5))]) -> None:
        mine.settle(tokens=500, requests=1)

    told = [TestClient(app).get("/").headers["ratelimit"] for _ in range(2)]
    assert [[each.split(";")[1] for each in one.split(", ")] for one in told] == [["r=9", "r=500"], ["r=8", "r=0"]]


def test_a_websocket_sees_the_decision_about_its_handshake():
    """In its state, as a request does."""
    seen = []

    async def plain(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"]["rate_limit"].remaining)
        await receive()
        await send({"type": "websocket.close"})

    fronted = RateLimitMiddleware(plain, {"rules": [{"key": "ip", "limits": "5/hour"}]})
    with pytest.raises(WebSocketDisconnect), TestClient(fronted).websocket_connect("/"):
        pass
    assert seen == [4]


def test_the_state_that_a_server_gives_is_kept():
    """The lifespan's state is there beside the decision, for every request."""
    app, _ = api(default="5/hour")

    @app.get("/")
    def read(request: Request) -> list[Any]:
        request.state.mine = 1
        return [request.state.pool, request.state.rate_limit.remaining]

    async def in_front(scope: Any, receive: Any, send: Any) -> None:
        given: dict[str, Any] = {"pool": "p"}
        scope["state"] = given
        await app(scope, receive, send)
        assert given["mine"] == 1

    assert TestClient(in_front).get("/").json() == ["p", 4]


def test_a_marked_request_is_counted_and_settled_like_any_other():
    """A mark charges nothing over its limit; a rule that has no key marks the request without numbers."""
    rule = {"name": "busy", "key": {"header": "x-key"}, "limits": "1/hour", "act": "mark", "missing": "deny"}
    rules = Responder({"rules": [rule]})
    asked = [rules.ask(headers={"x-key": "a"}) for _ in range(2)] + [rules.ask()]
    assert [each.kind for each in asked] == ["pass"] * 3
    marks: list[Any] = [(rule.name, decision) for each in asked for rule, decision in each.marked]
    assert [name for name, _ in marks] == ["busy", "busy"]
    assert (marks[0][1].retry_after, marks[1][1], asked[0].marked) == (3600.0, None, ())
    assert rules.compiled.counts.values()["busy"][:4] == (1, 0, 0, 2)


@every_server
@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_sees_its_decision_and_settles(kind, awaited):
    """In the handler's context; also where the store is awaited."""
    store = Slow(still()) if awaited else still()
    with serving(kind, {"rules": [{"name": "api", "key": "ip", **COSTLY}]}, store=store) as served:
        assert served.codes(1, "Unary", b"settle 3") == ["OK"]
        assert served.ask("Unary", b"left").responses == [b"87"]
        assert served.codes(1, "Stream", b"settle 25") == ["OK"]
        assert served.ask("Stream", b"left").responses[0] == b"52"


def test_a_view_of_flask_without_limits_may_settle():
    """No limit was asked about it, so there is nothing to settle."""
    app = Flask("site")
    flask.RateLimits(app, store=still())

    @app.get("/")
    def read() -> str:
        g.rate_limit.settle(tokens=5)
        return str(g.rate_limit.remaining)

    assert app.test_client().get("/").text == "None"
