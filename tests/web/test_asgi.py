"""ASGI: what passes is untouched, what is refused is told, and nothing of ours ever fails a request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import LATER, PEER, asgi, exchange, get, read_answer, scope

START = {"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]}


async def hello(given: Any, receive: Any, send: Any) -> None:
    """200 and two words."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
    await send({"type": "http.response.body", "body": b"hello ", "more_body": True})
    await send({"type": "http.response.body", "body": b"world"})


def limited(app: Any = hello, *, head: dict[str, Any] | None = None, **fields: Any) -> RateLimitMiddleware:
    """An app behind one rule, two a minute, by a clock that stands still."""
    edge = {
        name: fields.pop(name) for name in ("trusted_proxies", "user", "plan", "claims", "refusal") if name in fields
    }
    rule = {"name": "api", "key": "ip", "limits": "2/minute", **fields}
    store = MemoryStore(clock=ManualClock(LATER))
    return RateLimitMiddleware(app, {"rules": [rule], **(head or {})}, store=store, **edge)


def test_a_response_says_how_much_is_left_and_is_the_apps_otherwise():
    """The body and the app's headers are as they were."""
    answer = asgi(limited())
    assert answer.status == 200
    assert answer.headers == [("x-app", "1"), ("ratelimit-policy", '"api";q=2;w=60'), ("ratelimit", '"api";r=1;t=30')]
    assert answer.body == b"hello world"


def test_a_refusal_has_everything_a_client_needs():
    """429, when to come back, whose limit it was, and that it must not be cached; the app is not called."""
    app = limited()
    assert [asgi(app).status for _ in range(2)] == [200, 200]
    answer = asgi(app)
    assert (answer.status, json.loads(answer.body)) == (429, {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "The quota is used up",
        "status": 429, "violated-policies": ["api"], "detail": "Retry after 30 s.",
    })  # fmt: skip
    assert answer.fields == {
        "ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=0;t=60', "retry-after": "30",
        "cache-control": "no-store", "content-type": "application/problem+json",
        "content-length": str(len(answer.body)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("disclose", "told", "passed"),
    [
        ("full", {"ratelimit-policy", "ratelimit", "retry-after"}, {"ratelimit-policy", "ratelimit"}),
        ("retry", {"retry-after"}, set()),
        ("none", set(), set()),
    ],
)
def test_no_more_is_told_than_the_rule_discloses(disclose, told, passed):
    """In a yes and in a no, headers and body."""
    app = limited(limits="1/minute", disclose=disclose)
    answers = [asgi(app), asgi(app)]
    common = {"cache-control", "content-type", "content-length"}
    assert [set(answer.fields) for answer in answers] == [{"x-app"} | passed, common | told]
    assert ("60" in answers[1].body.decode()) is (disclose != "none")
    assert ("api" in answers[1].body.decode()) is (disclose == "full")


def test_a_list_and_a_missing_part_refuse_with_403():
    """No limit is to blame, so none is told."""
    for app in (limited(head={"deny": {"ip": PEER}}), limited(key="user", missing="deny")):
        answer = asgi(app)
        assert (answer.status, set(answer.fields)) == (403, {"cache-control", "content-type", "content-length"})


def test_a_shadow_answers_what_was_configured():
    """Status, body and type, and no word of a limit."""
    shadow = {"status": 202, "body": "ok ü", "content_type": "text/x-ok"}
    app = limited(limits="1/minute", act={"shadow": shadow})
    asgi(app)
    answer = asgi(app)
    assert (answer.status, answer.body) == (202, "ok ü".encode())
    assert answer.headers == [("content-type", "text/x-ok"), ("content-length", "5")]


def test_a_stream_passes_piece_by_piece():
    """Each piece is sent when the app sends it, as it is; the request is read by the app alone."""
    order: list[str] = []

    async def echo(given: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})
            order.append("app")

    async def run() -> list[dict[str, Any]]:
        pieces = [bytes([at]) * at for at in range(50)]
        messages = [{"type": "http.request", "body": piece, "more_body": at < 49} for at, piece in enumerate(pieces)]
        return await exchange(limited(echo, count={"when": {"status": 401}}), scope(), *messages)

    sent = asyncio.run(run())
    assert [message["body"] for message in sent[1:]] == [bytes([at]) * at for at in range(50)]
    assert [message["more_body"] for message in sent[1:]] == [True] * 49 + [False]


def test_where_no_rule_applies_the_app_gets_the_very_same_send():
    """Nothing is wrapped, nothing is copied."""
    seen: list[Any] = []

    async def app(given: Any, receive: Any, send: Any) -> None:
        seen.extend((given, receive, send))

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    made = scope()
    asyncio.run(limited(app, match={"path": "/other"})(made, receive, send))
    assert seen[0] is made and seen[1] is receive and seen[2] is send


def test_an_apps_own_message_is_not_changed():
    """An app may send the same message every time."""

    async def frugal(given: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b""})

    app = limited(frugal, limits="9/minute")
    assert [len(asgi(app).headers) for _ in range(3)] == [3, 3, 3]
    assert START["headers"] == [(b"x-app", b"1")]


@pytest.mark.parametrize("started", [False, True])
def test_an_exception_of_the_apps_is_the_apps(started):
    """It passes as it is; what was reserved for a 401 is given back when there was no answer."""

    async def broken(given: Any, receive: Any, send: Any) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("mine")

    app = limited(broken, count={"when": {"status": 401}})
    for _ in range(5):
        with pytest.raises(LookupError, match="mine"):
            asgi(app)


def test_ten_logins_at_once_at_a_limit_of_two():
    """Two reach the app, whatever it will answer; when they were good, two more may."""

    async def run() -> list[int]:
        gate = asyncio.Event()
        tried = 0

        async def login(given: Any, receive: Any, send: Any) -> None:
            nonlocal tried
            tried += 1
            await gate.wait()
            await hello(given, receive, send)

        app = limited(login, count={"when": {"status": [401, 403]}})
        asked = [asyncio.create_task(get(app, "POST", "/login")) for _ in range(10)]
        await asyncio.sleep(0.01)
        assert tried == 2
        gate.set()
        statuses = sorted([(await each).status for each in asked])
        return [*statuses, (await get(app)).status, (await get(app)).status]

    assert asyncio.run(run()) == [200] * 2 + [429] * 8 + [200] * 2


def test_a_client_that_goes_away_is_not_counted():
    """A cancelled request gives back what was reserved for its answer."""

    async def run() -> list[int]:
        async def slow(given: Any, receive: Any, send: Any) -> None:
            if given["path"] == "/slow":
                await asyncio.sleep(60)
            await hello(given, receive, send)

        app = limited(slow, count={"when": {"status": 200}})
        for _ in range(5):
            task = asyncio.create_task(get(app, "GET", "/slow"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return [(await get(app)).status for _ in range(3)]

    assert asyncio.run(run()) == [200, 200, 429]


def test_a_delay_holds_the_request_and_a_cancelled_one_leaves_the_queue():
    """Twenty a second: the third waits a tenth of a second; of a full queue, one that leaves makes room for one."""

    async def run() -> float:
        app = limited(limits="20/second", act={"delay": {"hold": 4}})
        app.runtime.store._engine.clock.set(app.runtime.clock.now_us() / 1e6)
        loop = asyncio.get_running_loop()
        start = loop.time()
        tasks = [asyncio.create_task(get(app)) for _ in range(4)]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        assert [(await task).status for task in tasks] == [200] * 3
        waited = loop.time() - start
        assert [(await get(app)).status for _ in range(2)] == [200, 429]
        return waited

    assert 0.1 <= asyncio.run(run()) < 5.0


class BaseUser:
    """As in Starlette: what a kind of user does not have raises NotImplementedError."""

    is_authenticated = True

    @property
    def identity(self) -> str:
        raise NotImplementedError


class SimpleUser(BaseUser):
    def __init__(self, username: str) -> None:
        self.username = self.display_name = username


class Anonymous(BaseUser):
    is_authenticated = False


def test_a_user_that_a_middleware_has_found_is_the_user():
    """Starlette's SimpleUser has no identity, and says so with an exception."""
    app = limited(key="user", missing="deny", limits="1/minute")
    asked = [asgi(app, user=SimpleUser(name)).status for name in ("ann", "ann", "bob")]
    assert asked == [200, 429, 200]
    assert asgi(app, user=Anonymous()).status == 403


def test_users_plans_and_claims_are_asked_of_the_app():
    """Each by its callable."""
    app = limited(
        key=["user", {"claim": "org"}],
        missing="deny",
        limits={"default": "1/minute", "pro": "3/minute"},
        user=lambda given: given["path"][1:],
        claims=lambda given: {"org": "acme"},
        plan=lambda seen: "pro" if seen.user == "ann" else None,
    )
    assert [asgi(app, "GET", path).status for path in ["/ann"] * 4 + ["/bob"] * 2] == [200, 200, 200, 429, 200, 429]


def test_cors_lets_scripts_read_our_headers_where_the_app_lets_them_in():
    """What the app exposes stays; without its permission nothing is added."""

    async def shared(given: Any, receive: Any, send: Any) -> None:
        headers = [(b"Access-Control-Allow-Origin", b"*"), (b"access-control-expose-headers", b"X-App")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    fields = asgi(limited(shared)).fields
    assert fields["access-control-expose-headers"] == "X-App, RateLimit-Policy, RateLimit, Retry-After"
    assert "access-control-expose-headers" not in asgi(limited()).fields


TEXTS = st.text(st.characters(max_codepoint=255), max_size=40)
NAMES = st.sampled_from(
    ["host", "cookie", "accept", "x-forwarded-for", "forwarded", "x-key", "x-plan", "", "authorization"]
)
EVERYTHING = [
    "ip", "user", "host", "method", "path", "route", {"header": "x-key"}, {"cookie": "a"}, {"query": "q"},
    {"trusted_header": "x-plan"}, {"param": "rest"}, {"claim": "sub"},
]  # fmt: skip


@settings(max_examples=300)
@given(
    path=st.text(max_size=40),
    method=st.sampled_from(["GET", "POST", "*", "é"]) | st.text(max_size=5),
    lines=st.lists(st.tuples(NAMES | TEXTS, TEXTS), max_size=6),
    query=st.binary(max_size=60),
    client=st.none() | st.tuples(TEXTS | st.just("10.0.0.1"), st.just(1)),
    limit=st.sampled_from([1, 1000]),
)
def test_no_request_is_ever_an_error_of_ours(path, method, lines, query, client, limit):
    """Whatever is sent: 200 or a refusal; one of what says two things at once does not change."""
    conditions = {
        "any": [{"not": {"host": "*.x"}}, {"cookie": {"a": "b"}}, {"query": {"q": True}}, {"ip": "10.0.0.0/8"}]
    }
    app = limited(
        key=EVERYTHING, limits=f"{limit}/minute", match={"path": ["/{rest:path}", "**"], **conditions},
        trusted_proxies=["10.0.0.0/8"], head={"plan": {"trusted_header": "x-plan"}},
    )  # fmt: skip
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines]
    made = {**scope(method, path), "headers": raw, "query_string": query, "client": client}
    statuses = [read_answer(asyncio.run(exchange(app, made))).status for _ in range(2)]
    assert statuses in ([200, 200], [200, 429], [400, 400])
