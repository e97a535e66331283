"""Load shedding where frameworks differ: calls of gRPC, websockets, cancellations, and what counts as latency."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headgate.permit import Outcome
from headgate.shed import LoadShedder, current_class, outgoing_headers
from headgate.web import asgi, wsgi
from headgate.web.request_charges import outcome_of
from headgate.web.shedding import _waited
from tests.support.edges import environ, exchange, get, scope

pytestmark = pytest.mark.engineless

KINDS = ["threads", "loop", "reading", "threads of a loop"]


def shed(**fields: Any) -> dict[str, Any]:
    return {"rules": [], "shed": {"limit": 1, "timeout": 0, **fields}}


def in_flight(limits: Any) -> int:
    return int(limits.shedder.stats().in_flight)


class Samples:
    """An estimator that keeps what it is told, with a limit that never changes."""

    dips = False
    base = 0.0
    idle_until = 0

    def __init__(self, limit: int = 1) -> None:
        self.limit = self.undipped = limit
        self.seen: list[Outcome] = []

    def begin(self, now: int, in_flight: int) -> int:
        return 0

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        self.seen.append(outcome)

    def refuse(self, now: int) -> None:
        pass


def sampled(limits: Any) -> list[Outcome]:
    """The outcomes that the estimator of an edge is told from now on."""
    estimator = limits.shedder.estimator = Samples()
    return estimator.seen


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "success"), (302, "success"), (404, "success"), (429, "ignored"), (499, "ignored"), (101, "ignored"),
     (500, "ignored"), (502, "ignored"), (503, "dropped"), (504, "dropped")],
)  # fmt: skip
def test_the_status_tells_how_a_request_went(status, outcome):
    """Only timeouts and busy dependencies lower the limit; quick failures must not look like speed."""
    assert outcome_of(status) == outcome


def test_a_timeout_under_way_is_a_drop():
    """A response that a framework sends for a `TimeoutError` has the status 500."""
    try:
        raise TimeoutError
    except TimeoutError:
        assert (outcome_of(500), outcome_of(200)) == ("dropped", "success")


class TestASGI:
    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize(("error", "outcome"), [(LookupError, "ignored"), (TimeoutError, "dropped")])
    def test_an_app_that_raises_leaves_no_permit(self, late, error, outcome):
        """Before the response the error counts, after its start the status does."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if late:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise error

        gate = asgi.RateLimitMiddleware(app, shed())
        seen = sampled(gate)
        with pytest.raises(error):
            asyncio.run(get(gate))
        assert (in_flight(gate), seen) == (0, ["success" if late else outcome])

    @pytest.mark.parametrize("store", ["memory", "awaited"])
    def test_a_cancelled_request_leaves_no_permit(self, store, server):
        """Cancelled in the app, or while it waits for a permit, it holds nothing and says nothing of the latency."""
        inside = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            inside.set()
            await asyncio.sleep(30)

        async def story(shedder: LoadShedder) -> None:
            running = asyncio.ensure_future(get(gate))
            await inside.wait()
            waiting = asyncio.ensure_future(get(gate))
            while not shedder.stats().waiting:
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert (shedder.stats().waiting, in_flight(gate)) == (0, 1)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert (shedder.stats().waiting, in_flight(gate)) == (0, 0)
            await gate.aclose()

        rules = {"rules": [{"name": "api", "key": "ip", "limits": "9/minute; 9 in flight"}]}
        given = None if store == "memory" else f"{server.url}?deadline=5"
        gate = asgi.RateLimitMiddleware(app, {**shed(timeout=30), **rules}, store=given)
        seen, shedder = sampled(gate), gate.shedder
        assert shedder is not None
        asyncio.run(asyncio.wait_for(story(shedder), 30))
        assert seen == ["ignored"]

    def test_a_websocket_holds_its_permit_and_gives_no_sample(self):
        """A second one is refused: with 503 if the server can send it, else with the close code 1013."""
        refusals: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            refusals.append((current_class(), seen.copy()))
            for asked in (scope_of(), scope_of("websocket.http.response")):
                sent = await exchange(gate, asked, {"type": "websocket.connect"})
                refusals.extend(sent[:1])

        def scope_of(*extensions: str) -> Any:
            return {**scope(type="websocket"), "extensions": {name: {} for name in extensions}}

        gate = asgi.RateLimitMiddleware(app, shed())
        seen = sampled(gate)
        asyncio.run(exchange(gate, scope_of(), {"type": "websocket.connect"}))
        (told, closed, answered) = refusals
        assert told == ("sheddable_plus", ["ignored"])
        assert closed == {"type": "websocket.close", "code": 1013}
        assert (answered["type"], answered["status"]) == ("websocket.http.response.start", 503)
        assert (in_flight(gate), seen) == (0, ["ignored"])

    def test_a_stream_gives_its_sample_when_it_begins(self):
        """The estimator is told before the end of the stream."""
        told: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            told.append((seen.copy(), in_flight(gate)))
            await send({"type": "http.response.body", "body": b""})

        gate = asgi.RateLimitMiddleware(app, shed())
        seen = sampled(gate)
        assert asyncio.run(get(gate)).status == 200
        assert (told, seen, in_flight(gate)) == ([(["success"], 1)], ["success"], 0)


@pytest.mark.parametrize(("weights", "first"), [({"pro": 3}, b"abbb"), ({}, b"aabb")], ids=["weights", "none"])
def test_the_plan_of_a_tenant_is_its_weight(weights, first):
    """Among requests that wait, a tenant whose plan has the weight 3 is served three times for each of another.

    Without weights, tenants at one address are served in turn.
    """
    served: list[bytes] = []

    async def main() -> None:
        gate = asyncio.Semaphore(0)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            served.append(dict(scope["headers"])[b"x-org"])
            await gate.acquire()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})

        given = shed(limit=8, timeout="60s", tenant={"header": "x-org"}, weights=weights)
        limits = asgi.RateLimitMiddleware(
            app, given, plan=lambda view: "pro" if view.header("x-org") == "b" else "free"
        )
        asked = ["first"] * 8 + ["a"] * 4 + ["b"] * 4
        tasks = [asyncio.create_task(get(limits, "GET", "/", {"x-org": each})) for each in asked]
        assert limits.shedder is not None
        while limits.shedder.stats().waiting < 8:
            await asyncio.sleep(0)
        for count in range(9, 17):
            gate.release()
            while len(served) < count:
                await asyncio.sleep(0)
        for _ in range(8):
            gate.release()
        assert [each.status for each in await asyncio.gather(*tasks)] == [200] * 16

    asyncio.run(asyncio.wait_for(main(), 60))
    assert b"".join(sorted(served[8:12])) == first
    assert sorted(served[8:]) == [b"a"] * 4 + [b"b"] * 4


def test_a_class_does_not_outlive_its_request_in_a_thread():
    """The next request of the same thread, which is exempt, has neither class nor deadline."""
    told: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        told.append((current_class(), sorted(outgoing_headers())))
        start_response("200 OK", [])
        return [b""]

    gate = wsgi.RateLimitMiddleware(app, shed(exempt={"path": "/healthz"}, deadline_header="x-timeout-ms"))
    for path in ("/", "/healthz"):
        pieces: Any = gate(environ(PATH_INFO=path, HTTP_X_TIMEOUT_MS="5000"), lambda *_: None)
        list(pieces)
        getattr(pieces, "close", lambda: None)()
    assert told == [("sheddable_plus", ["x-request-class", "x-timeout-ms"]), (None, [])]
    assert in_flight(gate) == 0


def test_a_reload_may_remove_the_class_of_a_request_under_way(tmp_path):
    """A request that was classified by the order of before is served, as one of the default class."""
    told: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        told.append(current_class())
        start_response("200 OK", [])
        return [b""]

    def write(*order: str) -> None:
        section = {"limit": 1, "timeout": 0, "order": order, "classes": {order[0]: {"plan": "pro"}}}
        (tmp_path / "policy.json").write_text(json.dumps({"rules": [], "shed": section}))

    def plan(view: Any) -> str:
        if not told:
            write("paid", "unpaid")
            assert gate.reload()
        return "pro"

    write("gold", "silver")
    gate = wsgi.RateLimitMiddleware(app, str(tmp_path / "policy.json"), plan=plan)
    for _ in range(2):
        pieces: Any = gate(environ(), lambda *_: None)
        pieces.close()
    assert (told, in_flight(gate)) == (["unpaid", "paid"], 0)


def test_a_response_that_is_closed_early_gives_its_permit_back():
    """A client that goes away makes the server close the response."""

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return iter([b"a", b"b"])

    gate = wsgi.RateLimitMiddleware(app, shed())
    pieces: Any = gate(environ(), lambda *_: None)
    parts = iter(pieces)
    assert (next(parts), in_flight(gate)) == (b"a", 1)
    pieces.close()
    assert in_flight(gate) == 0


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("t=1700000000.000", 10), ("1700000000", 10), ("t=1700000000000", 10), ("t=1700000000000000", 10),
     ("t=1700000015", 0), ("soon", 0), ("", 0), ("t=-5", 0), ("9" * 40, 0)],
)  # fmt: skip
def test_the_start_of_a_request_is_read_in_three_units(monkeypatch, given, seconds):
    """Proxies write seconds, milliseconds or microseconds; a text of another form says nothing."""
    monkeypatch.setattr("headgate.web.shedding.time.time", lambda: 1_700_000_010.0)
    assert _waited(given) == pytest.approx(seconds)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_queue_before_the_process_is_believed_of_proxies(trusted):
    """A client could claim a long queue, so that the workers shed others."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    gate = wsgi.RateLimitMiddleware(
        app, shed(workers={"signals": "queue"}), trusted_proxies=["203.0.113.0/24"] if trusted else []
    )
    shedder = gate.shedder
    assert shedder is not None and shedder._workers is not None
    noted: list[float] = []
    shedder.note_queue = noted.append  # type: ignore[assignment,method-assign]
    pieces: Any = gate(environ(REMOTE_ADDR="203.0.113.9", HTTP_X_REQUEST_START="t=1000000000"), lambda *_: None)
    pieces.close()
    assert [seconds > 1e8 for seconds in noted] == [True] * trusted


@pytest.mark.parametrize(
    ("lines", "known"),
    [(["critical"], "critical"), (["critical", "critical"], "critical"), (["critical", "sheddable"], "sheddable_plus")],
)
def test_a_class_that_a_client_sends_beside_that_of_its_proxy_counts_as_unknown(lines, known):
    """A proxy may add a line and keep the client's, which comes first: the client must not choose its class."""
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(current_class())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gate = asgi.RateLimitMiddleware(app, shed(class_header="x-class"), trusted_proxies=["203.0.113.0/24"])
    headers = [(b"x-class", line.encode()) for line in lines]
    asyncio.run(exchange(gate, {**scope(), "headers": headers}))
    assert told == [known]


def test_the_start_that_a_client_sends_beside_that_of_its_proxy_says_nothing():
    """Workers that measure the queue before them would shed the requests of others for it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gate = asgi.RateLimitMiddleware(app, shed(workers={"signals": "queue"}), trusted_proxies=["203.0.113.0/24"])
    noted: list[float] = []
    gate.shedder.note_queue = noted.append  # type: ignore[method-assign,union-attr]
    headers = [(b"x-request-start", line) for line in (b"t=1000000000", b"t=1700000000")]
    asyncio.run(exchange(gate, {**scope(), "headers": headers}))
    assert noted == [0.0]


class TestGRPC:
    @pytest.fixture
    def grpc(self):
        return pytest.importorskip("tests.support.grpc_servers")

    @pytest.mark.parametrize("kind", KINDS[:3])
    @pytest.mark.parametrize("method", ["Unary", "Stream"])
    def test_a_call_holds_its_permit_until_it_ends(self, grpc, kind, method):
        """A second call is UNAVAILABLE with a pushback; calls that raise, abort or end leave no permit."""
        with grpc.serving(kind, shed()) as server:
            first = server.begin(method, b"wait")
            assert server.echo.inside.acquire(timeout=10)
            refused = server.ask(method, b"hi")
            assert refused.code.name == "UNAVAILABLE"
            wait = int(refused.trailing["retry-after"])
            assert (wait >= 1, refused.trailing["grpc-retry-pushback-ms"]) == (True, str(wait * 1000))
            assert "ratelimit" not in refused.trailing
            server.echo.gate.set()
            assert grpc.ended(first, method).code.name == "OK"
            assert codes(server, method, b"raise", b"abort ABORTED", b"hi") == ["UNKNOWN", "ABORTED", "OK"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_views_see_the_class_and_the_deadline_of_the_call(self, grpc, kind):
        """The deadline is the call's own; it needs no header."""
        with grpc.serving(kind, shed(classes={"critical": {"path": "/echo.Echo/*"}})) as server:
            told: list[Any] = []
            heed: Any = server.echo.heed

            def noting(message: bytes, context: Any) -> Any:
                told.append((current_class(), sorted(outgoing_headers())))
                return heed(message, context)

            server.echo.heed = noting
            ask: Any = server.channel.unary_unary("/echo.Echo/Unary")
            assert (ask(b"hi", timeout=60), ask(b"hi")) == (b"hi", b"hi")
            assert told == [("critical", ["x-request-class", "x-timeout-ms"]), ("critical", ["x-request-class"])]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        ("method", "outcome"),
        [("Unary", "success"), ("Stream", "success"), ("Collect", "ignored"), ("Chat", "ignored")],
    )
    def test_only_the_time_of_the_server_is_a_sample(self, grpc, kind, method, outcome):
        """A stream of the client takes as long as the client likes, and a stream of responses counts to its first."""
        with grpc.serving(kind, shed()) as server:
            seen = sampled(server.interceptor)
            assert server.codes(1, method, b"hi") == ["OK"]
            assert seen == [outcome]


def codes(server: Any, method: str, *messages: bytes) -> list[str]:
    return [server.ask(method, message).code.name for message in messages]


def test_the_refusal_of_a_fleet_is_a_body_like_the_others():
    """Fleet, loop and workers are reasons like limit: one form of body for all."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answers.append(await get(gate))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    answers: list[Any] = []
    gate = asgi.RateLimitMiddleware(app, shed(limit=9, fleet={"limit": "1 in flight", "reserve": "0%"}))
    assert asyncio.run(get(gate)).status == 200
    assert (answers[0].status, json.loads(answers[0].body)["reason"]) == (503, "fleet")
