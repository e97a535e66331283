"""A site of Django for tests and for real servers: its settings, views and URLs, and users in a database in memory."""

# ruff: noqa: E402 - models and views can be imported when the settings are there

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import django
from django.conf import settings

AUTH = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
LIMITS = "headgate.web.django.RateLimitMiddleware"

if not settings.configured:
    settings.configure(
        SECRET_KEY="not a secret",
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        LANGUAGE_CODE="en",
        ROOT_URLCONF=__name__,
        LANGUAGES=[("en", "English"), ("de", "German")],
        INSTALLED_APPS=[
            "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
            "django.contrib.messages", "headgate.web.django",
        ],
        MIDDLEWARE=[SESSIONS, AUTH, LIMITS],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:hg?mode=memory&cache=shared"}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        LOGGING_CONFIG=None,
        HEADGATE={
            "STORE": os.environ.get("HEADGATE_URL"), "DEFAULT": "25/4 weeks by sliding-window",
            "KEY": {"header": "x-user"},
        },
    )  # fmt: skip
    django.setup()

from django.conf.urls.i18n import i18n_patterns
from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View

from headgate.web.django import by_group, exempt, limited
from tests.support.edges import still

CALLS: list[str] = []
"""The views that were called."""


def plain(request: Any, **_: Any) -> HttpResponse:
    """A view without a limit of its own."""
    CALLS.append(request.path)
    return HttpResponse("hello")


@limited("2/minute")
def search(request: Any, **_: Any) -> HttpResponse:
    return plain(request)


@exempt
def free(request: Any) -> HttpResponse:
    return plain(request)


def careless(view: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that hides what stands on the view."""
    return lambda request: view(request)


@careless
@limited("2/minute")
def hidden(request: Any) -> HttpResponse:
    return plain(request)


@limited("4/minute")
@login_required
@limited("3/minute")
def members(request: Any) -> HttpResponse:
    return plain(request)


@limited("4/minute")
def caller(request: Any) -> HttpResponse:
    """A view that calls another one."""
    return search(request)


@limited("2/minute", key="user")
def mine(request: Any) -> HttpResponse:
    return plain(request)


@limited(by_group({"pro": "3/minute", "staff": "", "default": "1/minute"}), key="user")
def groups(request: Any) -> HttpResponse:
    return plain(request)


@limited({"default": "1/minute", "pro": "3/minute"})
def plans(request: Any) -> HttpResponse:
    return plain(request)


@limited("1/minute", key=lambda request: request.headers["x-key"])
def keyed(request: Any) -> HttpResponse:
    return plain(request)


@limited("2/minute")
class Whole(View):
    def get(self, request: Any) -> HttpResponse:
        return plain(request)

    post = get


@method_decorator(limited("2/minute"), name="dispatch")
class Dispatch(View):
    def get(self, request: Any) -> HttpResponse:
        return plain(request)


@method_decorator(limited("1/minute"), name="post")
class Methods(View):
    @limited("2/minute")
    def get(self, request: Any) -> HttpResponse:
        return plain(request)

    def post(self, request: Any) -> HttpResponse:
        return plain(request)

    def put(self, request: Any) -> HttpResponse:
        return plain(request)


@limited("3/minute")
class Both(View):
    """A limit for all of it, and one for a method."""

    def get(self, request: Any) -> HttpResponse:
        return plain(request)

    @limited("1/minute")
    def post(self, request: Any) -> HttpResponse:
        return plain(request)


class Instance:
    """A view that is an object."""

    def __call__(self, request: Any) -> HttpResponse:
        return plain(request)


class Late(Whole):
    """Its own `dispatch` has nothing on it; that of the base class has."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


@exempt
class FreeClass(Methods):
    pass


@limited("2/minute")
async def awaited(request: Any) -> HttpResponse:
    return plain(request)


@limited("2/minute")
class AwaitedClass(View):
    async def get(self, request: Any) -> HttpResponse:
        return plain(request)


class AwaitedLate(AwaitedClass):
    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


def careless_awaited(view: Callable[..., Any]) -> Callable[..., Any]:
    """The same for an async view."""

    async def called(request: Any) -> Any:
        return await view(request)

    return called


@careless_awaited
@limited("2/minute")
async def hidden_awaited(request: Any) -> HttpResponse:
    return plain(request)


def refusal(request: Any, no: Any) -> HttpResponse:
    """A `REFUSAL_VIEW`: a page that reads the user."""
    return HttpResponse(f"{request.user or 'stranger'}: wait {no.retry_after}", status=no.response.status_code)


def refusal_page(request: Any, no: Any) -> TemplateResponse:
    """One that is rendered later."""
    page: Any = engines["django"].from_string("<p>{{ wait }}</p>")
    return TemplateResponse(request, page, {"wait": no.retry_after}, status=429, headers={"Retry-After": "99"})


async def refusal_awaited(request: Any, no: Any) -> HttpResponse:
    """An async one."""
    return HttpResponse("later", status=429)


def plan_of(request: Any) -> str | None:
    """From the database."""
    return request.user.groups.values_list("name", flat=True).first() if request.user.is_authenticated else None


class Outside:
    """A middleware outside of the limits, which sees every response."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        response["X-Outside"] = str(response.status_code)
        return response


api = [path("items/<int:pk>/", plain, name="item"), path("search/<slug:word>/", search, name="search")]
urlpatterns = [
    path("", plain),
    path("items/<int:pk>/", plain, name="item"),
    path("search/<slug:word>/", search),
    path("one/", include((api, "api"), namespace="one")),
    path("two/", include((api, "api"), namespace="two")),
    path("free/", free),
    path("hidden/", hidden),
    path("members/", members),
    path("caller/", caller),
    path("mine/", mine),
    path("groups/", groups),
    path("plans/", plans),
    path("keyed/", keyed),
    path("whole/", Whole.as_view()),
    path("dispatch/", Dispatch.as_view()),
    path("methods/", Methods.as_view()),
    path("both/", Both.as_view()),
    path("instance/", limited("2/minute")(Instance())),
    path("hidden-instance/", careless(limited("2/minute")(Instance()))),
    path("late/", Late.as_view()),
    path("free-class/", FreeClass.as_view()),
    path("awaited/", awaited),
    path("hidden-awaited/", hidden_awaited),
    path("awaited-class/", AwaitedClass.as_view()),
    path("awaited-late/", AwaitedLate.as_view()),
    path("admin/", admin.site.urls),
    *i18n_patterns(path("page/<int:pk>/", search, name="page")),
]


@contextmanager
def site(client: Callable[[], Any] = Client, **given: Any) -> Iterator[Any]:
    """A client of the site under these settings, by a clock that stands still."""
    CALLS.clear()
    store = still()
    with override_settings(HEADGATE={"STORE": store, **{name.upper(): value for name, value in given.items()}}):
        yield client()


@cache
def make_users() -> None:
    """Ann is in the group `pro`, Bob in none."""
    with connection.schema_editor() as editor:
        for table in (ContentType, Permission, Group, User, Session):
            editor.create_model(table)
    User.objects.create_user("ann").groups.add(Group.objects.create(name="pro"))
    User.objects.create_user("bob")


def logged_in(name: str, client: Callable[[], Any] = Client) -> Any:
    """A client with a session."""
    make_users()
    known = client()
    known.force_login(User.objects.get(username=name))
    return known


def __getattr__(name: str) -> Any:
    """Only the one that the server asks for is made."""
    if name == "wsgi":
        return get_wsgi_application()
    if name == "asgi":
        return get_asgi_application()
    raise AttributeError(name)
