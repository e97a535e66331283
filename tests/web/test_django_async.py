"""Django under ASGI: the same limits, awaited in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpResponse
from django.test import AsyncClient, override_settings
from django.urls import path

from headgate.web.django import RateLimitMiddleware, limited, rate_limits
from tests.support.django_site import AUTH, CALLS, LIMITS, SESSIONS, logged_in, site
from tests.support.edges import still
from tests.support.stores import Slow
from tests.web.test_django import API, WHEREVER, Urls

pytestmark = pytest.mark.engineless

T = TypeVar("T")


class Awaited(Slow):
    """A store that may only be awaited, and notes in which threads it is asked."""

    def __init__(self) -> None:
        super().__init__(still())
        self.threads: set[int] = set()

    def bind(self, *_: Any) -> Any:
        raise AssertionError("asked without being awaited")

    async def asked(self) -> None:
        self.threads.add(threading.get_ident())
        await super().asked()


def run(asked: Coroutine[Any, Any, T]) -> T:
    """In an event loop of its own, in this thread."""
    return asyncio.run(asked)


async def statuses(client: Any, count: int, url: str, **more: Any) -> list[int]:
    """The same request again and again."""
    return [(await client.get(url, **more)).status_code for _ in range(count)]


def ask(client: Any, count: int, url: str, **more: Any) -> list[int]:
    """The same, all in one event loop."""
    return run(statuses(client, count, url, **more))


def test_the_policy_and_the_default_limits():
    """Refused in front and at a view, whatever its parameters."""
    with site(
        AsyncClient, policy={"rules": [{"name": "all", "key": "ip", "limits": "5/minute"}]}, default="2/minute"
    ) as client:

        async def asked() -> list[Any]:
            urls = ["/items/1/", "/items/2/", "/items/3/", "/", "/", "/nowhere/", "/nowhere/"]
            return [await client.get(url) for url in urls]

        answers = run(asked())
    assert [each.status_code for each in answers] == [200, 200, 429, 200, 200, 404, 429]
    assert answers[0]["RateLimit"] == '"all";r=4;t=12, "items-int-pk";r=1;t=30'
    assert (answers[2]["RateLimit"], answers[2]["Retry-After"]) == ('"items-int-pk";r=0;t=60', "30")
    assert answers[5]["RateLimit"] == '"all";r=0;t=60'


@pytest.mark.parametrize("url", WHEREVER)
def test_wherever_the_decorator_stands_the_store_is_awaited_in_the_event_loop(url):
    """Sync views run in threads of Django's; what is asked for them is asked in the loop all the same."""
    store = Awaited()
    with site(AsyncClient, store=store, policy={"rules": [{"key": "ip", "limits": "9/minute"}]}) as client:
        assert ask(client, 3, url) == [200, 200, 429]
    assert [url, url] == CALLS
    assert store.threads == {threading.get_ident()}


def test_nothing_leaves_the_event_loop_for_a_decision(monkeypatch):
    """Neither for the policy nor at a view nor for a refusal, as long as nobody has to be looked up."""

    def leave(*_: Any, **__: Any) -> Any:
        raise AssertionError("a thread")

    monkeypatch.setattr("headgate.web.django.request.sync_to_async", leave)
    monkeypatch.setattr("headgate.web.django.site_limits.sync_to_async", leave)
    with site(AsyncClient, policy=API, default="1/minute") as client:
        assert ask(client, 3, "/awaited/") == [200, 200, 429]
        assert ask(client, 1, "/keyed/", headers={"x-key": "a"}) == [429]

    async def view(request: Any) -> HttpResponse:
        return HttpResponse()

    middleware = RateLimitMiddleware(view)
    assert iscoroutinefunction(middleware) and iscoroutinefunction(middleware.process_view)


PLANS = {"rules": [{"key": "ip", "limits": {"default": "1/minute", "pro": "3/minute"}}]}


@pytest.mark.parametrize(("url", "policy"), [("/groups/", None), ("/plans/", None), ("/", PLANS)])
def test_groups_and_plans_are_looked_up_in_djangos_thread(url, policy):
    """The database must not be asked in an event loop."""
    for who, expected in (("ann", [200, 200, 200, 429]), ("bob", [200, 429, 429, 429])):
        client = logged_in(who, AsyncClient)
        with site(store=Awaited(), policy=policy, plan="tests.support.django_site.plan_of"):
            assert ask(client, 4, url) == expected


@pytest.mark.parametrize("url", ["/", "/mine/"])
def test_users_are_looked_up_there_too(url):
    """For the policy and at a view; strangers are their addresses."""
    policy = {"rules": [{"key": "user", "limits": "2/minute"}]} if url == "/" else None
    ann, bob = logged_in("ann", AsyncClient), logged_in("bob", AsyncClient)
    with site(AsyncClient, store=Awaited(), policy=policy) as client:
        assert (ask(ann, 3, url), ask(bob, 1, url), ask(client, 3, url)) == ([200, 200, 429], [200], [200, 200, 429])


def test_what_is_not_counted_by_user_never_reads_the_session():
    """The response does not vary by the cookie."""
    ann = logged_in("ann", AsyncClient)
    with site(AsyncClient, policy=API, plan="tests.support.django_site.plan_of"):
        answer = run(ann.get("/awaited/"))
    assert (answer.status_code, answer.has_header("Vary")) == (200, False)


@pytest.mark.parametrize("where", ["tests.support.django_site.refusal", "tests.support.django_site.refusal_awaited"])
@pytest.mark.parametrize("url", ["/", "/awaited/", "/hidden-awaited/", "/hidden/"])
def test_a_refusal_of_the_apps(where, url):
    """A view that may ask the database, or one that is awaited."""
    ann = logged_in("ann", AsyncClient)
    with site(AsyncClient, store=Awaited(), refusal_view=where, default="2/minute"):

        async def asked() -> Any:
            return [await ann.get(url) for _ in range(3)][2]

        answer = run(asked())
    assert (answer.status_code, answer["Retry-After"]) == (429, "30")
    assert answer.content == (b"later" if where.endswith("awaited") else b"ann: wait 30")


def test_a_client_that_goes_away_gives_back_what_was_reserved():
    """It never saw a wrong password."""

    @limited("1/minute", count={"when": {"status": 401}})
    async def stuck(request: Any) -> HttpResponse:
        CALLS.append(request.path)
        await asyncio.sleep(60 if len(CALLS) == 1 else 0)
        return HttpResponse(status=401)

    async def attempts(client: Any) -> list[int]:
        first = asyncio.ensure_future(client.get("/"))
        while not CALLS:
            await asyncio.sleep(0.001)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await statuses(client, 2, "/")

    Urls.urlpatterns = [path("", stuck)]
    with override_settings(ROOT_URLCONF=Urls), site(AsyncClient, store=Awaited()) as client:
        assert run(attempts(client)) == [401, 429]


def test_a_middleware_that_is_not_async_inside_makes_this_one_a_thread():
    """As Django does with all around such a one; the counts are right all the same."""
    with override_settings(MIDDLEWARE=[SESSIONS, AUTH, LIMITS, "tests.support.django_site.Outside"]):
        with site(AsyncClient, policy=API) as client:
            assert ask(client, 3, "/awaited/") == [200, 200, 429]
        with site(AsyncClient, store=still()) as client:
            assert ask(client, 3, "/search/a/") == [200, 200, 429]


def test_headers_that_only_look_like_forwarded_ones_are_nothing():
    """Older Django reads an underscore as a dash, and would take the client's word for the proxy's."""
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "client": ["10.0.0.1", 1],
        "server": ("testserver", "80"), "scheme": "http", "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def asked(client: Any) -> list[int]:
        told = []
        for at in range(3):
            headers = [
                (b"host", b"testserver"),
                (b"x-forwarded-for", b"6.6.6.6"),
                (b"x-forwarded-for", b"203.0.113.9"),
                (b"x_forwarded_for", b"6.6.6.%d" % at),
            ]
            told.append((await client.handler({**scope, "headers": headers})).status_code)
        return told

    with site(AsyncClient, policy=API, trusted_proxies=["10.0.0.0/8"]) as client:
        assert run(asked(client)) == [200, 200, 429]


def test_a_real_store_is_awaited(server):
    """Redis, for async views and for others."""
    store, policy = f"{server.url}?deadline=5&connect_timeout=5", {"rules": [{"key": "ip", "limits": "3/hour"}]}
    with site(AsyncClient, store=store, policy=policy) as client:

        async def asked() -> list[int]:
            try:
                return [*await statuses(client, 2, "/hidden/"), *await statuses(client, 2, "/awaited/")]
            finally:
                await rate_limits.store.aclose()

        assert run(asked()) == [200, 200, 200, 429]
