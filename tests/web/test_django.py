"""Django under WSGI: the policy, the default limits, the limits of views, users, and system checks."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory, SimpleTestCase, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path

from headgate.errors import HeadgateError, InvalidCall, InvalidLimit, InvalidPolicy
from headgate.testing import frozen
from headgate.web.django import by_group, exempt, limited, rate_limits
from headgate.web.django.testing import override
from tests.support.django_site import AUTH, CALLS, LIMITS, SESSIONS, logged_in, search, site
from tests.support.edges import still

pytestmark = pytest.mark.engineless

API = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}


def statuses(client: Any, count: int, url: str, **more: Any) -> list[int]:
    """The same request again and again."""
    return [client.get(url, **more).status_code for _ in range(count)]


class TestPolicy:
    """In front of every view, and of none."""

    def test_middleware_outside_sees_refusals(self):
        """A refusal is a response like any other."""
        with override_settings(MIDDLEWARE=["tests.support.django_site.Outside", LIMITS]), site(policy=API) as client:
            answers = [client.get("/") for _ in range(3)]
        assert [each["X-Outside"] for each in answers] == ["200", "200", "429"]

    def test_a_shadow_is_not_rendered_by_the_apps_own_refusal(self):
        """The view for refusals has no part in an answer that looks like any other."""
        shadow = {"rules": [{"key": "ip", "limits": "1/minute", "act": {"shadow": {"body": "[]"}}}]}
        with site(policy=shadow, refusal_view="tests.support.django_site.refusal") as client:
            answers = [client.get("/") for _ in range(2)]
        assert [(each.status_code, each.content) for each in answers] == [(200, b"hello"), (200, b"[]")]


class TestDefault:
    """Limits of every view that has none of its own."""

    def test_views_with_limits_of_their_own_and_exempt_ones_are_left_alone(self):
        """Two at the search although the default is one; any number where it is free."""
        with site(default="1/minute") as client:
            assert statuses(client, 3, "/search/a/") == [200, 200, 429]
            assert statuses(client, 3, "/free/") == [200, 200, 200]
            assert [client.put("/free-class/").status_code for _ in range(3)] == [200, 200, 200]
            assert statuses(client, 3, "/free-class/") == [200, 200, 429]
            assert [client.put("/methods/").status_code for _ in range(2)] == [200, 429]

    @pytest.mark.parametrize(("exempts", "expected"), [(True, [302, 302]), (False, [302, 429])])
    def test_the_admin_may_be_exempt(self, exempts, expected):
        """From the default limits; a rule of the policy that names it counts."""
        with site(default="1/minute", exempt_admin=exempts) as client:
            assert statuses(client, 2, "/admin/") == expected
        rule = {"match": {"path": "/admin/login"}, "key": "ip", "limits": "1/minute"}
        with site(policy={"rules": [rule]}, exempt_admin=exempts) as client:
            assert statuses(client, 2, "/admin/login/")[1] == 429

    def test_one_view_under_two_namespaces_has_two_budgets(self):
        """The view has a third budget where it stands alone."""
        with site(default="1/minute") as client:
            for url in ("/one/items/1/", "/two/items/1/", "/items/1/"):
                assert statuses(client, 2, url) == [200, 429]

    def test_languages_share_a_budget(self):
        """Otherwise a client that asks in many languages would have many budgets."""
        middleware = [SESSIONS, "django.middleware.locale.LocaleMiddleware", AUTH, LIMITS]
        with override_settings(MIDDLEWARE=middleware), site() as client:
            assert [client.get(f"/{code}/page/1/").status_code for code in ("en", "de", "de", "en")] == [
                200,
                200,
                429,
                429,
            ]

    def test_the_key_of_the_default_limits(self):
        """As in a rule, or a function of the request."""
        with site(default="1/minute", key="user") as client:
            assert [logged_in(name).get("/").status_code for name in ("ann", "ann", "bob")] == [200, 429, 200]
            assert statuses(client, 2, "/") == [200, 429]
        with site(default="1/minute", key=lambda request: request.GET["q"]) as client:
            assert [client.get("/", {"q": word}).status_code for word in "aab"] == [200, 429, 200]


WHEREVER = [
    "/whole/", "/dispatch/", "/methods/", "/late/", "/hidden/", "/awaited/", "/awaited-class/", "/awaited-late/",
    "/hidden-awaited/", "/instance/", "/hidden-instance/",
]  # fmt: skip


class TestViews:
    """Limits at functions, classes and methods."""

    @pytest.mark.parametrize("url", WHEREVER)
    def test_wherever_the_decorator_stands(self, url):
        """On a class, on its dispatch, on a method, on a base class, under a decorator that hides it; async or not."""
        with site(default="9/minute") as client:
            answers = [client.get(url) for _ in range(3)]
        assert [each.status_code for each in answers] == [200, 200, 429]
        assert [url, url] == CALLS
        assert answers[2]["Retry-After"] == "30"

    def test_methods_have_limits_of_their_own(self):
        """One POST and two GETs, of which a HEAD is one."""
        with site() as client:
            assert [client.post("/methods/").status_code for _ in range(2)] == [200, 429]
            assert [client.head("/methods/").status_code, *statuses(client, 2, "/methods/")] == [200, 200, 429]
            assert client.head("/methods/").status_code == 429

    def test_limits_of_a_class_and_of_its_method_are_all_or_none(self):
        """Three for all, of which one POST: those that are refused cost nothing."""
        with site() as client:
            assert [client.post("/both/").status_code for _ in range(3)] == [200, 429, 429]
            assert statuses(client, 3, "/both/") == [200, 200, 429]
            rate_limits.store.clock.advance(60)
            assert client.post("/both/")["RateLimit"] == '"both";r=2;t=20, "both-post";r=0;t=60'

    def test_a_decorator_in_between_is_kept(self):
        """Strangers are sent to log in, however many limits are around that."""
        with site() as client:
            answer = client.get("/members/")
            assert answer.status_code == 302
            assert answer["RateLimit"] == '"members";r=3;t=15, "members.2";r=2;t=20'

    def test_a_view_that_calls_another_is_counted_at_both(self):
        """Four at the one, two at the other; what the first was charged for a refusal of the second is given back."""
        with site() as client:
            assert statuses(client, 4, "/caller/") == [200, 200, 429, 429]
            rate_limits.store.clock.advance(30)
            assert client.get("/caller/")["RateLimit"] == '"caller";r=3;t=15, "caller-search";r=0;t=60'

    def test_a_worker_that_is_ended_gives_back_what_was_reserved(self):
        """There was no wrong password."""

        @limited("1/minute", count={"when": {"status": 401}})
        def ending(request: Any) -> HttpResponse:
            raise SystemExit

        Urls.urlpatterns = [path("", ending)]
        with override_settings(ROOT_URLCONF=Urls), site() as client:
            for _ in range(3):
                with pytest.raises(SystemExit):
                    client.get("/")

    def test_a_view_without_the_middleware_says_what_is_missing(self):
        """Unless limits are switched off."""
        request = RequestFactory().get("/search/a/")
        with site(), pytest.raises(HeadgateError, match="'headgate.web.django.RateLimitMiddleware' in MIDDLEWARE"):
            search(request)
        with site(enabled=False):
            assert search(request).status_code == 200

    def test_a_middleware_that_was_loaded_twice_asks_once(self):
        """Threads that share a test client do that."""
        with site() as client:
            client.get("/")
            client.handler._view_middleware *= 2
            assert statuses(client, 3, "/search/a/") == [200, 200, 429]

    def test_one_view_may_be_exempt_at_one_place_only(self):
        """The view itself is not changed."""
        Urls.urlpatterns = [path("a/", exempt(plain_view)), path("b/", plain_view)]
        with override_settings(ROOT_URLCONF=Urls), site(default="1/minute") as client:
            assert (statuses(client, 2, "/a/"), statuses(client, 2, "/b/")) == ([200, 200], [200, 429])

    @pytest.mark.parametrize("given", ["5 a minute", "", None])
    def test_mistakes_are_told_where_they_are_made(self, given):
        """The mistake is not told only at the first request."""
        with pytest.raises((InvalidLimit, InvalidPolicy)):
            limited(given)
        with pytest.raises(InvalidPolicy, match="did you mean 'user'"):
            limited("1/minute", key="usr")

    def test_what_cannot_be_limited(self):
        """A class that is no view, and a function that has to be awaited."""
        with pytest.raises(InvalidCall, match="a class with as_view"):
            limited("1/minute")(dict)

        async def key(request: Any) -> str:
            return ""

        with pytest.raises(InvalidCall, match="is async"):
            limited("1/minute", key=["ip", key])


class Urls:
    """A URLconf."""

    urlpatterns: ClassVar[list[Any]] = []


def plain_view(request: Any) -> HttpResponse:
    return HttpResponse()


class TestUsers:
    """Keys by user, and the queries that they cost."""

    def test_a_user_is_counted_wherever_he_comes_from(self):
        """Ann at two addresses is one, strangers are their addresses."""
        with site() as client:
            ann = logged_in("ann")
            assert [ann.get("/mine/", REMOTE_ADDR=f"10.0.0.{at}").status_code for at in (1, 2, 3)] == [200, 200, 429]
            assert statuses(logged_in("bob"), 1, "/mine/") == [200]
            assert statuses(client, 3, "/mine/") == [200, 200, 429]

    def test_what_is_not_counted_by_user_never_reads_the_session(self):
        """No query, and no `Vary: Cookie` which would keep the page out of every cache."""
        with site(policy=API, default="5/minute", plan="tests.support.django_site.plan_of"):
            ann = logged_in("ann")
            with CaptureQueriesContext(connection) as queries:
                answers = [ann.get("/"), ann.get("/search/a/")]
        assert [(each.status_code, each.has_header("Vary")) for each in answers] == [(200, False), (200, False)]
        assert len(queries) == 0

    def test_a_function_of_the_app_says_who_it_is(self):
        """The function is named by its dotted path."""
        with site(default="1/minute", key="user", user="tests.web.test_django.tenant") as client:
            asked = [client.get("/", headers={"x-tenant": name}).status_code for name in ("a", "a", "b")]
        assert asked == [200, 429, 200]

    def test_limits_by_group(self):
        """Pro users have three, staff any number, everybody else one; groups are asked for once a request."""
        with site() as client:
            ann, bob = logged_in("ann"), logged_in("bob")
            with CaptureQueriesContext(connection) as queries:
                assert statuses(ann, 1, "/groups/") == [200]
            assert len([each for each in queries.captured_queries if "auth_group" in each["sql"]]) == 1
            assert (statuses(ann, 3, "/groups/"), statuses(bob, 2, "/groups/")) == ([200, 200, 429], [200, 429])
            assert statuses(client, 2, "/groups/") == [200, 429]

    def test_limits_by_group_are_not_for_policies(self):
        """These have plans."""
        policy = {"rules": [{"key": "ip", "limits": by_group({"default": "1/minute"})}]}
        with site(policy=policy) as client, pytest.raises(InvalidPolicy, match="in a policy, write plans"):
            client.get("/")

    def test_limits_by_group_are_checked(self):
        """The limit of everybody else has to be given, and every limit has to be one."""
        with pytest.raises(InvalidCall, match="'default' is missing in pro"):
            by_group({"pro": "3/minute"})
        with pytest.raises(InvalidLimit, match="cannot read the limit"):
            by_group({"pro": "many", "default": "1/minute"})

    def test_plans(self):
        """A function of the request says which, for the policy and for views."""
        rule = {"key": "ip", "limits": {"default": "1/minute", "pro": "3/minute"}}
        for policy, url in ((None, "/plans/"), ({"rules": [rule]}, "/")):
            with site(policy=policy, plan="tests.support.django_site.plan_of") as client:
                assert statuses(logged_in("ann"), 4, url) == [200] * 3 + [429]
                assert statuses(logged_in("bob"), 2, url, REMOTE_ADDR="10.0.0.2") == [200, 429]
                assert statuses(client, 2, url, REMOTE_ADDR="10.0.0.3") == [200, 429]
        allowed = {"allow": {"plan": "pro"}, "rules": [{"key": "ip", "limits": "1/minute"}]}
        with site(policy=allowed, plan="tests.support.django_site.plan_of"):
            assert statuses(logged_in("ann"), 3, "/") == [200] * 3


def tenant(request: Any) -> str:
    return str(request.headers["x-tenant"])


class TestRefusals:
    """Responses to refusals."""

    @pytest.mark.parametrize("url", ["/search/a/", "/hidden/"])
    def test_a_view_of_the_apps(self, url):
        """It has the request and the refusal; the header fields are added."""
        with site(refusal_view="tests.support.django_site.refusal"):
            answer = [logged_in("ann").get(url) for _ in range(3)][2]
        assert (answer.status_code, answer.content) == (429, b"ann: wait 30")
        assert (answer["Retry-After"], answer["Cache-Control"]) == ("30", "no-store")
        assert answer["Content-Type"] == "text/html; charset=utf-8"
        assert "Content-Length" not in answer

    def test_a_template_is_rendered_and_its_fields_are_kept(self):
        """In front of the views nobody else would render it."""
        with site(policy=API, refusal_view="tests.support.django_site.refusal_page") as client:
            answer = [client.get("/") for _ in range(3)][2]
        assert (answer.content, answer["Retry-After"]) == (b"<p>30</p>", "99")
        assert answer["RateLimit"] == '"api";r=0;t=60'

    def test_an_async_one(self):
        """Under WSGI too."""
        with site(policy=API, refusal_view="tests.support.django_site.refusal_awaited") as client:
            assert [client.get("/").content for _ in range(3)][2] == b"later"


class TestTests:
    """Limits in the tests of a site."""

    def test_override_changes_single_keys(self):
        """Everything else stays; counts are fresh inside, and as they were afterwards."""
        with site(policy=API) as client:
            assert statuses(client, 2, "/") == [200, 200]
            with override(enabled=False):
                assert client.get("/").headers.keys().isdisjoint({"RateLimit", "RateLimit-Policy"})
            with override(policy=None, default="1/minute", store=None):
                assert statuses(client, 2, "/") == [200, 429]
            assert statuses(client, 1, "/") == [429]

    def test_settings_that_change_while_limits_are_frozen(self):
        """The frozen store is that of the new settings too, and nobody's afterwards."""
        with site(policy=API):
            home = rate_limits.store
            with frozen(rate_limits):
                inside = rate_limits.store
                with override(default="1/minute"):
                    assert rate_limits.store is inside
                assert rate_limits.store is inside
            assert rate_limits.store is home
            with override(store=None):
                with frozen(rate_limits):
                    pass
                assert rate_limits.store is not home
            assert rate_limits.store is home

    def test_override_on_functions_and_on_classes_of_tests(self):
        """As `override_settings` does."""
        seen: list[Any] = []

        @override(default="7/minute")
        class Case(SimpleTestCase):
            def test_it(self) -> None:
                seen.append(settings.HEADGATE)

        @override(default="8/minute")
        def function() -> None:
            seen.append(settings.HEADGATE["DEFAULT"])

        Case.setUpClass()
        Case("test_it").debug()
        Case.doClassCleanups()
        function()
        assert seen == [{**settings.HEADGATE, "DEFAULT": "7/minute"}, "8/minute"]


def test_a_store_of_ones_own_outlives_the_settings():
    """A store that was opened from a URL is closed with the settings."""
    store = still()
    for _ in range(2):
        with override_settings(HEADGATE={"STORE": store, "DEFAULT": "1/minute"}):
            last = Client().get("/").status_code
    assert last == 429
