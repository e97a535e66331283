"""Django REST framework: throttles that know whom the framework authenticated, and are one decision."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, override_settings
from django.urls import include, path

from headgate.errors import HeadgateError, InvalidCall, InvalidPolicy
from headgate.testing import disabled
from headgate.web.django import rate_limits
from tests.support.django_site import AUTH, CALLS, SESSIONS, limited, site
from tests.support.stores import away
from tests.web.test_django import statuses
from tests.web.test_django_async import Awaited, ask

from rest_framework.authentication import BaseAuthentication  # isort: skip - when the settings are there
from rest_framework.decorators import action, api_view, throttle_classes  # isort: skip
from rest_framework.response import Response  # isort: skip
from rest_framework.routers import DefaultRouter  # isort: skip
from rest_framework.throttling import BaseThrottle  # isort: skip
from rest_framework.views import APIView  # isort: skip
from rest_framework.viewsets import ViewSet  # isort: skip

from headgate.web.drf import RateLimitThrottle  # isort: skip

pytestmark = pytest.mark.engineless


class Who:
    """A user that only the framework's authentication knows."""

    is_authenticated = True

    def __init__(self, pk: str) -> None:
        self.pk = pk


class Tokens(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        token = request.headers.get("x-token")
        return (Who(token), token) if token else None


class Burst(RateLimitThrottle):
    limits = "3/minute"


Namesake = type("Burst", (RateLimitThrottle,), {"limits": "3/minute", "__module__": "another"})


class Sustained(RateLimitThrottle):
    limits = "3/hour"


class Everyone(RateLimitThrottle):
    limits = "4/minute"
    key = "everyone"


class Strangers(RateLimitThrottle):
    limits = "1/minute"
    key = "ip"
    rule: ClassVar[dict[str, Any]] = {"exempt": lambda request: request.user.is_authenticated}


class Scoped(RateLimitThrottle):
    scope = "uploads"


class Keyed(RateLimitThrottle):
    limits = "1/minute"
    key: ClassVar[Any] = {"query": "key"}
    rule: ClassVar[dict[str, Any]] = {"missing": "deny"}


class Failures(RateLimitThrottle):
    limits = "2/minute"
    rule: ClassVar[dict[str, Any]] = {"count": {"when": {"status": 404}}}


class Writes(RateLimitThrottle):
    """One that decides for itself when to ask."""

    limits = "1/minute"

    def allow_request(self, request: Any, view: Any) -> bool:
        return request.method == "GET" or super().allow_request(request, view)


class Never(BaseThrottle):
    """Somebody else's."""

    def allow_request(self, request: Any, view: Any) -> bool:
        return False


class Strict(RateLimitThrottle):
    limits = "2/minute"
    rule: ClassVar[dict[str, Any]] = {"on_error": "deny"}


class Members(RateLimitThrottle):
    """One whose limits and key are methods, as the framework's own `get_rate` and `get_cache_key` are."""

    fewest = 1

    def limits(self, request: Any) -> str:
        return f"{self.fewest + 1 if request.user.is_authenticated else self.fewest}/minute"

    def key(self, request: Any) -> str:
        return str(request.headers.get("x-team", "nobody"))


class Guests(RateLimitThrottle):
    limits = lambda request: "1/minute"  # noqa: E731
    key = staticmethod(lambda request: request.headers.get("x-team", "nobody"))


class Base(APIView):
    authentication_classes = (Tokens,)
    permission_classes = ()

    def get(self, request: Any, **_: Any) -> Response:
        CALLS.append(request.path)
        return Response({"path": request.path}, status=int(request.GET.get("status", 200)))

    def post(self, request: Any, **_: Any) -> Response:
        return self.get(request)


def view(*throttles: Any, **more: Any) -> Any:
    """A view with these throttles."""
    return type("View", (Base,), {"throttle_classes": list(throttles), **more}).as_view()


@limited("2/minute")
class Limited(Base):
    pass


@api_view()
@throttle_classes([Burst])
def function(request: Any) -> Response:
    return Response()


@api_view()
@limited("2/minute")
def inside(request: Any) -> Response:
    return Response()


@limited("2/minute")
@api_view()
def outside(request: Any) -> Response:
    return Response()


class Things(ViewSet):
    authentication_classes = (Tokens,)
    permission_classes = ()
    throttle_classes = (Burst,)

    def list(self, request: Any) -> Response:
        return Response()

    @limited("1/minute")
    def retrieve(self, request: Any, pk: str) -> Response:
        return Response()

    @limited("2/minute")
    @action(detail=True)
    def other(self, request: Any, pk: str) -> Response:
        return Response()

    @action(detail=False, throttle_classes=())
    def bare(self, request: Any) -> Response:
        return Response()


router = DefaultRouter()
router.register("things", Things, basename="thing")


class Urls:
    urlpatterns: ClassVar[list[Any]] = [
        path("burst/<int:pk>/", view(Burst)),
        path("again/", view(Burst)),
        path("both/", view(Burst, Everyone)),
        path("namesake/", view(Namesake)),
        path("strangers/", view(Strangers)),
        path("long/", view(Burst, Sustained)),
        path("scoped/", view(Scoped)),
        path("named/", view(RateLimitThrottle, throttle_scope="uploads")),
        path("unnamed/", view(RateLimitThrottle)),
        path("unknown/", view(RateLimitThrottle, throttle_scope="nowhere")),
        path("endless/", view(RateLimitThrottle, throttle_scope="endless")),
        path("failures/", view(Failures)),
        path("keyed/", view(Keyed)),
        path("writes/", view(Burst, Writes)),
        path("writes-first/", view(Writes, Burst)),
        path("strict/", view(Strict)),
        path("members/", view(Members)),
        path("guests/", view(Guests)),
        path("limited/", Limited.as_view()),
        path("plain/", Base.as_view()),
        path("added/", Base.as_view(throttle_classes=(Burst,))),
        path("function/", function),
        path("inside/", inside),
        path("outside/", outside),
        path("api/", include(router.urls)),
    ]


@pytest.fixture(autouse=True)
def _urls() -> Any:
    rates = {"uploads": "2/min", "endless": None}
    with override_settings(ROOT_URLCONF=Urls, REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": rates}):
        yield


def test_a_throttle_is_one_budget_over_the_views_that_have_it():
    """As the framework's own are, whatever the path's parameters; another app's class of that name is another one."""
    with site() as client:
        urls = ("/burst/1/", "/burst/2/", "/again/", "/again/", "/namesake/")
        assert [client.get(url).status_code for url in urls] == [200, 200, 200, 429, 200]


def test_a_key_that_is_missing_or_said_twice_is_told_in_the_framework_s_way():
    """With what is missing, and the challenge that a 401 has."""
    with site() as client:
        missing, twice = client.get("/keyed/"), client.get("/keyed/?key=a&key=b")
        assert statuses(client, 2, "/keyed/?key=a") == [200, 429]
    assert (missing.status_code, missing.headers["WWW-Authenticate"]) == (401, "APIKey")
    assert missing.json() == {"detail": "The query parameter key is missing."}
    said = "The query parameter key was sent more than once, with different values."
    assert (twice.status_code, twice.json()) == (400, {"detail": said})


def test_whom_the_framework_authenticated_is_counted():
    """Tokens that only the view can read; strangers are their addresses."""
    with site() as client:
        asked = [client.get("/again/", headers={"x-token": token}).status_code for token in ("a", "a", "a", "a", "b")]
        assert asked == [200, 200, 200, 429, 200]
        assert statuses(client, 1, "/again/") == [200]


def test_a_throttle_for_strangers():
    """Functions are given the framework's request."""
    with site() as client:
        assert statuses(client, 2, "/strangers/") == [200, 429]
        assert statuses(client, 2, "/strangers/", headers={"x-token": "a"}) == [200, 200]


def test_a_refusal_is_the_frameworks_and_has_every_field():
    """Its own body and Retry-After; the others come from the middleware."""
    with site() as client:
        first, *_, last = [client.get("/again/") for _ in range(4)]
    assert first["RateLimit-Policy"] == '"Burst";q=3;w=60'
    assert (first["RateLimit"], last["RateLimit"]) == ('"Burst";r=2;t=20', '"Burst";r=0;t=60')
    assert json.loads(last.content) == {"detail": "Request was throttled. Expected available in 20 seconds."}
    assert (last["Retry-After"], last["Cache-Control"], last["Content-Type"]) == ("20", "no-store", "application/json")


def test_several_throttles_are_one_decision():
    """Three each, four for all: what is refused charges neither, in whichever order they are asked."""
    with site() as client:
        assert statuses(client, 2, "/both/", headers={"x-token": "a"}) == [200, 200]
        assert statuses(client, 4, "/both/", headers={"x-token": "b"}) == [200, 200, 429, 429]
        assert statuses(client, 2, "/again/", headers={"x-token": "b"}) == [200, 429]
        rate_limits.store.clock.advance(15)
        answer = client.get("/both/", headers={"x-token": "a"})
        assert answer["RateLimit"] == '"Burst";r=0;t=45, "Everyone";r=0;t=60'


def test_the_longest_wait_is_told():
    """The wait is not that of the first throttle that refuses."""
    with site() as client:
        assert [client.get("/long/") for _ in range(4)][3]["Retry-After"] == "1200"


def test_without_the_middleware_throttles_work_alone():
    """All or none, with the framework's Retry-After; what counts by the response needs the middleware, and says so."""
    with override_settings(MIDDLEWARE=[SESSIONS, AUTH]), site() as client:
        assert statuses(client, 4, "/both/") == [200, 200, 200, 429]
        refused = client.get("/both/")
        assert (refused["Retry-After"], refused.has_header("RateLimit")) == ("20", False)
        assert statuses(client, 2, "/both/", headers={"x-token": "a"}) == [200, 429]
        with pytest.raises(HeadgateError, match="Failures counts by the response; add RateLimitMiddleware"):
            client.get("/failures/")


def test_scopes_find_their_rates_where_the_framework_has_them():
    """The throttle's scope and the view's are one budget."""
    with site() as client:
        urls = ("/scoped/", "/named/", "/scoped/", "/named/")
        assert [client.get(url).status_code for url in urls] == [200, 200, 429, 429]
        assert client.get("/named/")["RateLimit-Policy"] == '"uploads";q=2;w=60'
        assert (statuses(client, 5, "/unnamed/"), statuses(client, 5, "/endless/")) == ([200] * 5, [200] * 5)
        with pytest.raises(ImproperlyConfigured, match=r"DEFAULT_THROTTLE_RATES\['nowhere'\]"):
            client.get("/unknown/")


def test_a_throttle_may_count_by_the_response():
    """Only what was not found."""
    with site() as client:
        asked = [client.get(f"/failures/?status={status}").status_code for status in (200, 200, 404, 200, 404, 200)]
    assert asked == [200, 200, 404, 200, 404, 429]


@pytest.mark.parametrize("url", ["/writes/", "/writes-first/"])
def test_a_throttle_that_decides_for_itself_when_to_ask(url):
    """GETs cost it nothing; a POST that it refuses costs the other nothing, and the other way round."""
    with site() as client:
        assert [client.post(url).status_code for _ in range(3)] == [200, 429, 429]
        assert statuses(client, 3, url) == [200, 200, 429]
    with site() as client:
        assert statuses(client, 4, url) == [200, 200, 200, 429]
        assert client.post(url).status_code == 429
        rate_limits.store.clock.advance(20)
        assert client.post(url).status_code == 200


def test_functions_and_viewsets():
    """The framework's decorators limit them, and so do ours: at an action, which counts beside the throttle."""
    with site() as client:
        assert statuses(client, 4, "/function/") == [200, 200, 200, 429]
        assert statuses(client, 3, "/inside/") == statuses(client, 3, "/outside/") == [200, 200, 429]
        who = {"headers": {"x-token": "a"}}
        assert statuses(client, 2, "/api/things/", **who) == [200, 200]
        assert [client.get(f"/api/things/{pk}/", **who).status_code for pk in (1, 2)] == [200, 429]
        assert statuses(client, 1, "/api/things/", **who) == [429]
        assert statuses(client, 3, "/api/things/1/other/", headers={"x-token": "b"}) == [200, 200, 429]


def test_views_with_throttles_are_left_alone_by_the_default_limits():
    """Those without are not; limits of ours on the class go before."""
    with site(default="1/minute") as client:
        assert statuses(client, 4, "/again/") == [200, 200, 200, 429]
        assert statuses(client, 2, "/plain/") == [200, 429]
        assert statuses(client, 3, "/limited/") == [200, 200, 429]


def test_throttles_of_an_action_or_of_as_view_replace_those_of_the_class():
    """Without any, an action of a viewset with throttles has the default limits."""
    with site(default="2/minute") as client:
        assert statuses(client, 3, "/api/things/bare/") == [200, 200, 429]
        assert statuses(client, 4, "/added/") == [200, 200, 200, 429]


def test_a_refusal_gives_back_what_the_policy_charged():
    """Seven of ten after three views."""
    policy = {"rules": [{"name": "all", "key": "ip", "limits": "10/minute"}]}
    with site(policy=policy) as client:
        assert statuses(client, 5, "/again/") == [200, 200, 200, 429, 429]
        assert client.get("/plain/")["RateLimit"] == '"all";r=6;t=24'


def test_a_store_that_is_away():
    """`on_error: deny` is a 503, which is not the client's fault."""
    with site(store=away()) as client:
        answer = client.get("/strict/")
    assert (answer.status_code, json.loads(answer.content)) == (503, {"detail": "Service Unavailable"})


def test_under_asgi_the_store_is_awaited():
    """Although the framework's views are not async."""
    with site(AsyncClient, store=Awaited()) as client:
        assert ask(client, 4, "/again/", headers={"x-token": "a"}) == [200, 200, 200, 429]


def test_switched_off():
    """The settings switch limits off, and so do the tools for tests."""
    with site(enabled=False) as client:
        assert statuses(client, 5, "/again/") == [200] * 5
    with site() as client, disabled(rate_limits):
        assert statuses(client, 5, "/again/") == [200] * 5


@pytest.mark.parametrize(("url", "passed"), [("/members/", 2), ("/guests/", 1)])
def test_limits_and_key_may_be_methods_or_functions_of_the_request(url, passed):
    """With `self` or without."""
    with site() as client:
        for team in ("red", "blue"):
            named = {"x-token": "ann", "x-team": team}
            statuses = [client.get(url, headers=named).status_code for _ in range(3)]
            assert statuses == [200] * passed + [429] * (3 - passed)


def test_mistakes_are_told_where_they_are_made():
    """When the class is."""
    with pytest.raises(InvalidPolicy, match="cannot read the limit 'many'"):
        type("Many", (RateLimitThrottle,), {"limits": "many"})
    with pytest.raises(InvalidCall, match="a throttle cannot have act: shadow"):
        type("Shadow", (RateLimitThrottle,), {"limits": "1/minute", "rule": {"act": "shadow"}})
