"""Flask: limits where Flask's users write them, one decision before the view, and every response told what is left."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from flask import Blueprint, Flask, Response, abort, current_app, g, request
from flask.views import MethodView, View
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

import headgate
from headgate import MemoryStore
from headgate.errors import HeadgateError, InvalidCall, InvalidPolicy
from headgate.testing import reset_all
from headgate.web.flask import RateLimitExceeded, RateLimits, exempt, limited
from headgate.web.refusal import Refusal
from tests.support.edges import still
from tests.support.servers import wait_until
from tests.support.serving import serving

pytestmark = pytest.mark.engineless


def make(policy: Any = None, *, config: dict[str, Any] | None = None, **options: Any) -> Flask:
    """An app with limits, by a clock that stands still."""
    app = Flask("shop")
    app.config.update(config or {})
    RateLimits(app, policy, store=still(), **options)
    return app


def hello(**arguments: Any) -> str:
    """A view."""
    return "hello"


def put(app: Flask | Blueprint, path: str, view: Any = hello, endpoint: str | None = None, **options: Any) -> None:
    """Register a view."""
    name = endpoint or path.strip("/").replace("/", "_").replace("<", "").replace(">", "") or "index"
    app.add_url_rule(path, name, view, **options)


def statuses(app: Flask, *paths: str, method: str = "GET", ip: str = "203.0.113.9", **request: Any) -> list[int]:
    """Of one request to each path."""
    client = app.test_client()
    return [client.open(path, method=method, environ_base={"REMOTE_ADDR": ip}, **request).status_code for path in paths]


def fields_of(app: Flask, path: str = "/", **request: Any) -> dict[str, str]:
    """What is said beside a response."""
    answer = app.test_client().open(path, **request)
    names = [name.lower() for name, _ in answer.headers]
    assert len(set(names)) == len(names)
    return {name.lower(): value for name, value in answer.headers}


def policy_of(limits: str, **rule: Any) -> dict[str, Any]:
    """A policy of one rule by address."""
    return {"rules": [{"name": "front", "key": "ip", "limits": limits, **rule}]}


# The view's own limits


def test_every_url_of_an_endpoint_is_one_count():
    """Whatever the path's parameters, and by whichever of its rules."""
    app = make()
    view = limited("3/minute")(hello)
    app.add_url_rule("/items/<int:id>", "item", view)
    app.add_url_rule("/old/<int:id>", "item", view)
    app.add_url_rule("/other/<int:id>", "other", view)
    assert statuses(app, "/items/1", "/items/2", "/old/3", "/items/4", "/old/5") == [200, 200, 200, 429, 429]
    assert statuses(app, "/other/1") == [200]


def test_clients_are_told_apart_by_address_and_ipv6_by_network():
    """On the first request and on those after it, which go a quicker way."""
    app = make()
    put(app, "/", limited("2/minute")(hello))
    assert statuses(app, *["/"] * 3, ip="203.0.113.9") == [200, 200, 429]
    assert statuses(app, *["/"] * 3, ip="2001:db8:0:1::1") == [200, 200, 429]
    assert statuses(app, "/", ip="2001:db8:0:1:ffff::2") == [429]
    assert statuses(app, "/", "/", "/", ip="a|b") == [200, 200, 429]
    assert statuses(app, "/", ip="a\\pb") == [200]


def test_what_stands_between_two_limits_is_kept():
    """A login check between two decorators is not lost."""

    def login(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def checked(**arguments: Any) -> Any:
            return view(**arguments) if "user" in request.args else abort(401)

        return checked

    app = make()
    put(app, "/", limited("2/minute")(login(limited("5/minute")(hello))))
    assert statuses(app, "/", "/?user=ann", "/?user=ann") == [401, 200, 429]


def test_limits_may_be_an_async_function_without_arguments():
    """It looks at Flask's request."""
    app = make()

    async def plan() -> str:
        return "4/minute" if request.args.get("plan") == "pro" else "2/minute"

    put(app, "/", limited(plan)(hello))
    assert statuses(app, "/", "/", "/") == [200, 200, 429]
    assert statuses(app, *["/?plan=pro"] * 5, ip="203.0.113.10") == [200] * 4 + [429]


def test_limits_of_one_name_share_one_count():
    """Wherever they are."""
    app = make()
    mail = limited("2/hour", name="mail")
    put(app, "/invite", mail(hello))
    put(app, "/remind", mail(lambda: "other"))
    post = mail(Blueprint("post", "shop"))
    put(post, "/both", mail(lambda: "both"))
    app.register_blueprint(post)
    assert statuses(app, "/invite", "/remind", "/invite", "/remind", "/both") == [200, 200, 429, 429, 429]
    assert fields_of(app, "/both")["ratelimit"] == '"mail";r=1;t=1800'


def test_a_function_under_several_limits_at_several_endpoints():
    """What one decorator made is not what the other did."""
    app = make()
    put(app, "/strict", limited("1/minute")(hello))
    put(app, "/loose", limited("2/minute")(hello))
    put(app, "/free", hello)

    class Shop:
        def open(self) -> str:
            return "open"

    def local() -> str:
        return "local"

    put(app, "/local", limited("1/minute")(local))
    put(app, "/local/free", local)
    put(app, "/method", limited("1/minute")(Shop().open))
    assert statuses(app, "/strict", "/strict", "/loose", "/loose", "/loose") == [200, 429, 200, 200, 429]
    assert statuses(app, "/local", "/local", "/method", "/method") == [200, 429, 200, 429]
    assert not {"ratelimit"} & {*fields_of(app, "/free"), *fields_of(app, "/local/free")}


def test_a_decorator_above_the_routes_counts_all_the_same():
    """Flask was given the function without it: a trap of decorators, not here."""
    app = make()

    @limited("2/minute")
    @limited("5/minute")
    @app.get("/")
    def index() -> str:
        return "hello"

    assert statuses(app, "/", "/", "/") == [200, 200, 429]
    assert fields_of(app)["ratelimit-policy"] == '"index";q=2;w=60, "index.2";q=5;w=60'


def test_limits_that_another_decorator_hides_are_asked_when_the_view_is_called():
    """It has no functools.wraps; they are one decision still, and what was charged before is given back on a no."""

    def hiding(view: Callable[..., Any]) -> Callable[..., Any]:
        return lambda **arguments: view(**arguments)

    app = make(policy_of("9/minute"))
    put(app, "/", hiding(limited("2/minute")(limited("5/minute", name="wide")(hello))))
    assert statuses(app, "/", "/", "/", "/", ip="127.0.0.1") == [200, 200, 429, 429]
    put_back = fields_of(app, "/missing")["ratelimit"]
    assert put_back == '"front";r=6;t=20'
    left = fields_of(app, environ_base={"REMOTE_ADDR": "198.51.100.7"})["ratelimit"]
    assert left == '"front";r=8;t=7, "tests.web.test_flask.hello";r=1;t=30, "wide";r=4;t=12'


def test_a_function_that_is_no_view_is_limited_where_it_is_called():
    """By its own name, at whichever endpoint."""
    app = make()
    send = limited("2/minute")(lambda: "sent")
    put(app, "/a", lambda: send())
    put(app, "/b", lambda: send())
    assert statuses(app, "/a", "/b", "/a", "/b") == [200, 200, 429, 429]


def test_a_limited_function_outside_of_requests_and_in_an_app_without_limits():
    """In a shell or a unit test it is what it was; in a request the app has to have the extension."""
    view = limited("1/minute")(hello)
    assert [view() for _ in range(3)] == ["hello"] * 3
    app = Flask("bare")
    app.testing = True
    put(app, "/", view)
    with pytest.raises(HeadgateError, match=r"hello has limits, and the app has none; write RateLimits\(app\)"):
        app.test_client().get("/")


def test_mistakes_are_told_where_they_are_made():
    """Not at the first request."""
    with pytest.raises(InvalidPolicy, match="minut"):
        limited("5/minut")
    with pytest.raises(InvalidPolicy, match="did you mean 'count'"):
        limited("5/minute", cuont={})
    with pytest.raises(InvalidCall, match=r"decorators = \[limited"):
        limited("5/minute")(type("Page", (View,), {}))
    with pytest.raises(InvalidCall, match="default="):
        limited("5/minute")(Flask("app"))
    with pytest.raises(InvalidCall, match="expected a view or a blueprint"):
        exempt("index")  # type: ignore[type-var]


# Defaults, blueprints, exemptions


def test_default_limits_leave_files_preflights_redirects_and_errors_of_routing_alone():
    """A page needs many files; a browser asks beforehand; nobody is charged twice for a slash."""
    app = make(default="1/minute")
    put(app, "/page/", hello, "page", methods=["GET", "PUT"])
    assert statuses(app, "/static/a.css", "/static/b.css") == [404, 404]
    assert statuses(app, "/page/", "/page/", method="OPTIONS") == [200, 200]
    assert statuses(app, "/page", "/page", "/missing", "/missing") == [308, 308, 404, 404]
    assert statuses(app, "/page/", method="DELETE") == [405]
    assert statuses(app, "/page/", "/page/") == [200, 429]


def test_a_view_that_is_called_static_is_a_view():
    """Only what Flask serves by itself is left alone."""
    app = make(default="1/minute")
    pages = Blueprint("pages", "shop")
    put(pages, "/map", hello, "static")
    files = Blueprint("files", "shop", static_folder=".", url_prefix="/files")
    app.register_blueprint(pages)
    app.register_blueprint(files)
    assert statuses(app, "/map", "/map") == [200, 429]
    assert statuses(app, "/files/test_flask.pyx", "/files/test_flask.pyx") == [404, 404]


def test_limits_of_a_blueprint():
    """Each view has its own count, or all one under a name; a view's own are asked in the same decision."""
    app = make(default="1/minute")
    api = Blueprint("api", "shop", url_prefix="/api")
    put(api, "/a")
    put(api, "/b", limited("5/minute", key="everyone")(hello))
    put(api, "/free", exempt(lambda: "free"))
    assert limited("2/minute")(api) is api
    app.register_blueprint(api)
    put(app, "/outside")
    assert statuses(app, *["/api/a"] * 3, *["/api/b"] * 3) == [200, 200, 429] * 2
    assert statuses(app, "/outside", "/outside", *["/api/free"] * 4) == [200, 429] + [200] * 4
    other = statuses(app, "/api/b", "/api/b", "/api/b", ip="203.0.113.10")
    assert other + statuses(app, "/api/b", "/api/b", ip="203.0.113.11") == [200, 200, 429, 200, 429]
    limited("3/minute", name="whole")(shared := Blueprint("shared", "shop", url_prefix="/shared"))
    put(shared, "/a")
    put(shared, "/b")
    app2 = make()
    app2.register_blueprint(shared)
    assert statuses(app2, "/shared/a", "/shared/b", "/shared/a", "/shared/b") == [200, 200, 200, 429]


def test_blueprints_within_blueprints():
    """Limits add up from the inside out, as far as an exemption."""
    app = make(default="1/minute")
    outer, inner, free = (Blueprint(name, "shop", url_prefix=f"/{name}") for name in ("outer", "inner", "free"))
    limited("4/minute", key="everyone")(outer)
    limited("2/minute")(inner)
    exempt(free)
    for blueprint in (outer, inner, free):
        put(blueprint, "/")
    put(free, "/own", limited("3/minute")(hello))
    outer.register_blueprint(inner)
    outer.register_blueprint(free)
    app.register_blueprint(outer)
    assert statuses(app, *["/outer/inner/"] * 3) == [200, 200, 429]
    assert statuses(app, *["/outer/inner/"] * 3, ip="203.0.113.10") == [200, 200, 429]
    assert statuses(app, "/outer/inner/", ip="203.0.113.11") == [429]
    assert statuses(app, *["/outer/"] * 5) == [200] * 4 + [429]
    assert statuses(app, *["/outer/free/"] * 9) == [200] * 9
    assert statuses(app, *["/outer/free/own"] * 4) == [200] * 3 + [429]


def test_a_blueprint_registered_twice_has_two_sets_of_counts():
    """As its endpoints have two names."""
    app = make()
    api = limited("1/minute")(Blueprint("api", "shop"))
    put(api, "/a")
    app.register_blueprint(api, url_prefix="/v1", name="v1")
    app.register_blueprint(api, url_prefix="/v2", name="v2")
    assert statuses(app, "/v1/a", "/v2/a", "/v1/a", "/v2/a") == [200, 200, 429, 429]


def test_classes_of_views():
    """Limits in `decorators` are for every method, those on methods for theirs; together they are one decision."""

    class Items(MethodView):
        decorators: ClassVar = [limited("4/minute", name="items")]

        def get(self, item: int) -> str:
            return f"got {item}"

        @limited("1/minute", name="writes")
        def post(self, item: int) -> str:
            return f"put {item}"

        @exempt
        @limited("9/minute", name="deletes")
        async def delete(self, item: int) -> str:
            return f"gone {item}"

    class Page(View):
        init_every_request = False

        @limited("2/minute")
        def dispatch_request(self) -> str:
            return "page"

    app = make()
    app.add_url_rule("/items/<int:item>", view_func=Items.as_view("items"))
    app.add_url_rule("/page", view_func=Page.as_view("page"))
    assert statuses(app, "/items/1", "/items/2", method="POST") == [200, 429]
    assert statuses(app, "/items/1") + statuses(app, "/items/3", method="HEAD") == [200, 200]
    assert app.test_client().delete("/items/9", environ_base={"REMOTE_ADDR": "203.0.113.9"}).text == "gone 9"
    assert statuses(app, "/items/1") == [429]
    assert fields_of(app, "/items/1", method="POST")["ratelimit-policy"] == '"items";q=4;w=60, "writes";q=1;w=60'
    assert statuses(app, "/page", "/page", "/page") == [200, 200, 429]
    assert fields_of(app, "/page")["ratelimit"] == '"page";r=1;t=30'


# Refusals


def test_an_apps_error_handler_answers_and_the_fields_are_added():
    """For the status and for the class; what the handler says itself stays."""
    for handled in (429, RateLimitExceeded):
        app = make()
        put(app, "/", limited("1/minute")(hello))

        @app.errorhandler(handled)
        def busy(error: RateLimitExceeded) -> Any:
            assert error.decision is not None
            return {"wait": error.retry_after, "limit": str(error.decision.binding)}, 429, {"Cache-Control": "private"}

        assert statuses(app, "/", "/", ip="127.0.0.1") == [200, 429]
        answer = app.test_client().get("/")
        assert answer.json == {"wait": 60, "limit": "1/minute as index"}
        assert answer.headers["Retry-After"] == "60" and answer.headers["RateLimit"] == '"index";r=0;t=60'
        assert answer.headers.getlist("Cache-Control") == ["private"]
        assert answer.content_type == "application/json"


def test_an_apps_handler_may_answer_with_a_stream():
    """Nothing that is said of the refusal's own body is said of it."""
    app = make()
    put(app, "/", limited("1/minute")(hello))
    app.register_error_handler(429, lambda error: (iter(["much ", "later"]), 429, {"Content-Type": "text/plain"}))
    assert statuses(app, "/", ip="127.0.0.1") == [200]
    answer = app.test_client().get("/")
    assert answer.text == "much later" and answer.headers["Retry-After"] == "60"
    assert "Content-Length" not in answer.headers and answer.headers.getlist("Content-Type") == ["text/plain"]


def test_flasks_recipe_for_json_errors():
    """It takes the response of the exception and gives it another body."""
    app = make()
    put(app, "/", limited("1/minute")(hello))

    @app.errorhandler(HTTPException)
    def as_json(error: HTTPException) -> Any:
        response = error.get_response()
        response.data = json.dumps({"code": error.code, "name": error.name})
        response.content_type = "application/json"
        return response

    assert statuses(app, "/", "/missing", ip="127.0.0.1") == [200, 404]
    answer = app.test_client().get("/")
    assert (answer.status_code, answer.json) == (429, {"code": 429, "name": "Too Many Requests"})
    assert answer.headers.getlist("Retry-After") == ["60"]


def test_the_handler_of_a_blueprint_is_for_its_views():
    """The refusal comes to it as if the view had raised."""
    app = make(default="1/minute")
    api = Blueprint("api", "shop", url_prefix="/api")
    put(api, "/")
    put(app, "/")
    api.register_error_handler(429, lambda error: ("api", 429))
    app.register_blueprint(api)
    assert statuses(app, "/", "/api/", ip="127.0.0.1") == [200, 200]
    client = app.test_client()
    assert client.get("/api/").text == "api" and client.get("/").content_type == "application/problem+json"


def test_refusals_that_are_no_429():
    """A key that is missing is a 403, for its handlers; a shadow is for none."""
    app = make()
    put(app, "/user", limited("1/minute", key="user", missing="deny")(hello))
    put(app, "/shadow", limited("1/minute", act={"shadow": {"status": 403, "body": "[]"}})(hello))
    app.register_error_handler(403, lambda error: ("who?", 403))
    assert app.test_client().get("/user").text == "who?"
    assert [app.test_client().get("/shadow").text for _ in range(2)] == ["hello", "[]"]


# Responses


def test_one_response_that_is_sent_every_time_has_each_field_once():
    """As an app may keep it."""
    app, kept = make(default="3/minute"), Response("kept")
    put(app, "/", lambda: kept)
    assert [fields_of(app)["ratelimit"] for _ in range(3)] == [
        f'"index";r={left};t={t}' for left, t in ((2, 20), (1, 40), (0, 60))
    ]


def test_fields_are_named_for_scripts_where_the_app_lets_them_in():
    """Also of a refusal, and with what is exposed already."""
    app = make(default="1/minute")
    put(app, "/", lambda: ("", 200, {"Access-Control-Expose-Headers": "X-Mine"}))

    @app.after_request
    def share(response: Response) -> Response:
        response.headers["access-control-allow-origin"] = "https://a.org"
        return response

    assert fields_of(app)["access-control-expose-headers"] == "X-Mine, RateLimit-Policy, RateLimit, Retry-After"
    refused = fields_of(app)
    assert refused["access-control-expose-headers"] == "RateLimit-Policy, RateLimit, Retry-After"
    assert refused["retry-after"] == "60"


# Counting after the response


def login() -> Any:
    """The status that is asked for, or an exception."""
    status = int(request.args["status"])
    if status == 0:
        raise LookupError("mine")
    return "", status


def test_an_exception_that_leaves_the_app_is_counted_as_500():
    """As in tests, where Flask lets it through; what is reserved for a 401 is given back."""
    app = make()
    app.testing = True
    put(app, "/wrong", limited("2/minute", count={"when": {"status": 401}})(login))
    put(app, "/broken", limited("2/minute", count={"when": {"status": 500}})(login))
    for path, times in (("/wrong", 5), ("/broken", 2)):
        for _ in range(times):
            with pytest.raises(LookupError):
                app.test_client().get(f"{path}?status=0")
    assert statuses(app, "/wrong?status=200", ip="127.0.0.1") == [200]
    assert statuses(app, "/broken?status=200", ip="127.0.0.1") == [429]


def test_a_context_that_is_kept_by_a_test_does_not_hold_the_count():
    """`with client:` keeps a request's context, and a context pushed by hand keeps `g`, for the next request."""
    app = make()
    put(app, "/login", limited("1/minute", count={"when": {"status": 401}})(login))
    with app.app_context(), app.test_client() as client:
        g.kept = True
        assert [client.get(f"/login?status={status}").status_code for status in (200, 200, 401, 200)] == [
            200, 200, 401, 429,
        ]  # fmt: skip
        assert "RateLimit" not in client.get("/missing").headers


def test_async_views():
    """Are views: refused before they run, and counted by what they answer."""
    app, called = make(), []

    async def view() -> str:
        called.append(request.path)
        return "hello"

    put(app, "/", limited("1/minute")(view))
    put(app, "/wrong", limited("1/minute", count={"when": {"status": 401}})(view))
    assert statuses(app, "/", "/", "/wrong", "/wrong") == [200, 429, 200, 200]
    assert called == ["/", "/wrong", "/wrong"]


# A policy in front


def test_a_policy_knows_the_template_of_a_route():
    """As a condition, and as a part of a key; also where one endpoint has two."""
    rules = [{"name": "item", "match": {"route": "/items/<int:id>"}, "key": ["route", "ip"], "limits": "1/minute"}]
    app = make({"rules": rules})
    put(app, "/items/<int:id>", hello, "item")
    put(app, "/old/<int:id>", hello, "item")
    assert statuses(app, "/old/1", "/old/1", "/items/1", "/items/2", "/missing") == [200, 200, 200, 429, 404]


def test_paths_of_a_policy_are_read_as_in_front_of_any_app():
    """Mounted or not, and whatever bytes they have."""
    rules = [
        {"name": name, "match": {"path": path}, "key": "ip", "limits": limits}
        for name, path, limits in (
            ("umlaut", "/ü", "1/minute"),
            ("latin", "/Ã¼", "9/minute"),
            ("plain", "/a", "1/minute"),
        )
    ]
    app = make({"rules": rules})
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/shop": app.wsgi_app})  # type: ignore[method-assign]
    put(app, "/<path:name>")
    put(app, "/")
    assert statuses(app, "/shop/ü", "/ü", "/shop/%C3%83%C2%BC", "/shop/%C3%83%C2%BC") == [200, 429, 200, 200]
    assert statuses(app, "/%C3%83%C2%BC", "/%C3%83%C2%BC", "/%C3%BC", "/shop/ü") == [200, 200, 429, 429]
    assert statuses(app, "/a", "/a", "/shop/a", "/b", "/b") == [200, 429, 429, 200, 200]


def test_nobody_asks_who_it_is_where_no_rule_does():
    """Whoever reads the session makes the response vary by its cookie, and may ask a database."""
    asked = []

    def user() -> str:
        asked.append(request.path)
        return "ann"

    app = make(policy_of("9/minute"), user=user)
    put(app, "/", limited("9/minute")(hello))
    put(app, "/own", limited("1/minute", key="user")(hello))
    assert statuses(app, "/", "/own") + statuses(app, "/own", ip="203.0.113.10") == [200, 200, 429]
    assert asked == ["/own", "/own"]


# Who the client is


def test_proxyfix_is_believed_and_not_warned_of(caplog):
    """Werkzeug has set the address right; without it the log says what to do."""
    app = make(default="1/minute")
    app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    put(app, "/")
    sent = ("192.0.2.1", "192.0.2.1", "192.0.2.2")
    assert [statuses(app, "/", headers={"X-Forwarded-For": value})[0] for value in sent] == [200, 429, 200]
    assert "forwarded headers" not in caplog.text
    bare = make(default="1/minute")
    put(bare, "/")
    statuses(bare, "/", "/", headers={"X-Forwarded-For": "192.0.2.1"})
    assert caplog.text.count("requests have forwarded headers, but no proxy is trusted") == 1


# Apps and their settings


def test_one_extension_for_several_apps():
    """Each has its store, its settings and its counts; the views' limits are the same."""
    limits, view = RateLimits(default="1/minute"), limited("2/minute")(hello)
    apps = []
    for name in ("one", "two"):
        app = Flask(name)
        limits.init_app(app)
        put(app, "/", view)
        put(app, "/default")
        apps.append(app)
    for app in apps:
        assert statuses(app, "/", "/", "/", "/default", "/default") == [200, 200, 429, 200, 429]
    with apps[0].app_context():
        with apps[1].app_context():
            reset_all(limits)
        assert [statuses(app, "/") for app in apps] == [[429], [200]]
        reset_all(limits)
        assert statuses(apps[0], "/") == [200]
    with pytest.raises(HeadgateError, match="app_context"):
        reset_all(limits)
    with pytest.raises(InvalidCall, match="already"):
        limits.init_app(apps[0])


def test_apps_that_share_a_store_share_no_counts():
    """Endpoints of one name in two apps; the same app in two processes does share."""
    store = still()
    apps = [Flask(name) for name in ("one", "two", "one")]
    for app in apps:
        RateLimits(app, default="1/minute", store=store)
        put(app, "/")
    assert [statuses(app, "/") for app in apps] == [[200], [200], [429]]


def test_a_request_within_a_request():
    """An app whose view asks another, in the context of a third: each answers for itself."""
    inner, outer, bare = make(default="1/minute"), make(), Flask("bare")
    put(inner, "/")

    def asking() -> str:
        with bare.app_context():
            return f"{current_app.name} {inner.test_client().get('/').status_code}"

    put(outer, "/", limited("5/minute")(asking))
    answers = [outer.test_client().get("/") for _ in range(2)]
    assert [answer.text for answer in answers] == ["bare 200", "bare 429"]
    assert [answer.headers["RateLimit"] for answer in answers] == ['"index";r=4;t=12', '"index";r=3;t=24']


def test_settings_from_the_config_and_arguments_that_win():
    """Each by its name; functions too."""
    store = still()
    config = {
        "HEADGATE_STORE": store,
        "HEADGATE_DEFAULT": "1/minute",
        "HEADGATE_KEY": lambda: request.args.get("user", "nobody"),
        "HEADGATE_POLICY": policy_of("3/minute"),
        "HEADGATE_TRUSTED_PROXIES": ["10.0.0.0/8"],
        "HEADGATE_REFUSAL": Refusal("busy"),
    }
    app = Flask("shop")
    app.config.from_mapping(config)
    RateLimits().init_app(app)
    put(app, "/")
    through = {"ip": "10.0.0.1", "headers": {"X-Forwarded-For": "192.0.2.1"}}
    assert statuses(app, "/?user=ann", "/?user=ann", "/?user=bob", "/?user=cid", "/?user=dan", **through) == [
        200, 429, 200, 200, 429,
    ]  # fmt: skip
    counted = store.keys()
    assert counted > 0
    won = Flask("shop")
    won.config.from_mapping(config)
    RateLimits(won, policy_of("9/minute"), default="2/minute", store=MemoryStore(), key="ip")
    put(won, "/")
    assert statuses(won, "/", "/", "/") == [200, 200, 429]
    assert store.keys() == counted


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"HEADGATE_DEFAUTL": "1/minute"}, "HEADGATE_DEFAUTL in the app's config; did you mean HEADGATE_DEFAULT"),
        ({"HEADGATE_TRUSTED_PROXY": []}, "did you mean HEADGATE_TRUSTED_PROXIES"),
        ({"HEADGATE_COLOUR": 1}, "use one of POLICY, DEFAULT, KEY, STORE"),
        ({"HEADGATE_ENABLED": "false"}, "HEADGATE_ENABLED must be True or False; got 'false'"),
        ({"HEADGATE_TRUSTED_PROXIES": "10.0.0.0/8"}, "networks must be a list"),
        ({"HEADGATE_STORE": "reddis://cache"}, "no store for 'reddis' URLs"),
        ({"HEADGATE_DEFAULT": "1/minut"}, "minut"),
        ({"HEADGATE_POLICY": {"rules": []}}, "rules is empty"),
    ],
)
def test_settings_that_are_wrong_are_told_when_the_app_is_made(config, said):
    """With what would be right."""
    app = Flask("shop")
    app.config.update(config)
    with pytest.raises(HeadgateError, match=said.replace("(", r"\(")):
        RateLimits(app)


def test_names_of_others_in_the_environment_are_left_alone(monkeypatch):
    """A config may be made of all of it."""
    monkeypatch.setenv("HEADGATE_PEPPER", "secret")
    app = Flask("shop")
    app.config.from_mapping(os.environ)
    RateLimits(app)


def test_switched_off_and_on():
    """Whenever it is: also when the app has been made, and also for views that hide their limits."""
    app = make(policy_of("1/minute"), default="1/minute", config={"HEADGATE_ENABLED": False})
    put(app, "/")
    put(app, "/hidden", lambda: limited("1/minute", name="hidden")(hello)())
    assert statuses(app, *["/", "/hidden"] * 3) == [200] * 6
    assert "ratelimit" not in fields_of(app)
    app.config["HEADGATE_ENABLED"] = True
    assert statuses(app, "/", "/") == [200, 429]


def test_functions_before_the_request_keep_their_order():
    """Those registered before the extension come first: a key may use what they find, and they may answer first."""
    app = Flask("shop")

    @app.before_request
    def find_user() -> Any:
        g.user = request.args.get("user")
        return None if g.user else ("who?", 401)

    RateLimits(app, default="1/minute", key=lambda: g.user)
    put(app, "/")
    assert statuses(app, "/?user=ann", "/?user=ann", "/?user=bob", "/", "/") == [200, 429, 200, 401, 401]


# Real servers

SERVED = """
from flask import Flask
from headgate.web.flask import RateLimits, limited

app = Flask(__name__)
limits = RateLimits(app)

@app.get("/")
@limited("25/4 weeks by sliding-window")
def item():
    return "hello"
"""


def test_the_reloader_of_debug_mode(tmp_path):
    """A changed limit is there after a reload; nothing of the old one is left behind."""
    (tmp_path / "served.py").write_text(SERVED)
    command = ("flask", "--app=served", "run", "--debug", "--host=unix://{socket}")
    source = {"PYTHONPATH": str(Path(headgate.__file__).resolve().parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    with serving(tmp_path, *command, cwd=tmp_path, **source) as server:
        answer = server.ask()
        assert (answer.status, answer.fields["ratelimit-policy"]) == (200, '"item";q=25;w=2419200')
        (tmp_path / "served.py").write_text(SERVED.replace("25/4 weeks", "1/4 weeks"))

        def reloaded() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return server.ask().fields["ratelimit-policy"] == '"item";q=1;w=2419200'
            return False

        wait_until(reloaded, "the app is reloaded", 20)
        assert server.ask().status == 429
