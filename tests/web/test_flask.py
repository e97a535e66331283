"""Flask: limits where Flask's users write them, one decision before the view, and every response told what is left."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, abort, g, request
from flask.views import View
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import Rule

from headgate.errors import HeadgateError, InvalidCall, InvalidPolicy
from headgate.web.flask import RateLimits, exempt, limited
from tests.support.edges import still

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
    """Two decorators make two views."""
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


def wrapping(view: Callable[..., Any]) -> Callable[..., Any]:
    """Another decorator, which copies what the view has."""
    return functools.wraps(view)(lambda **arguments: view(**arguments))


def test_a_decorator_above_another_one_above_the_routes_counts_too():
    """Flask was given the function within both."""
    app = make()

    @limited("2/minute")
    @wrapping
    @app.get("/")
    def index() -> str:
        return "hello"

    assert statuses(app, "/", "/", "/") == [200, 200, 429]


def test_a_decorator_above_the_routes_raises_in_an_app_without_limits():
    """As it does below them; a view that is at a route as it is, and elsewhere with limits, stays as it is."""
    app = Flask("shop")

    @limited("2/minute")
    @limited("5/minute")
    @app.get("/")
    def index() -> str:
        return "hello"

    @limited("2/minute")
    @wrapping
    @app.get("/wrapped")
    def wrapped() -> str:
        return "hello"

    put(app, "/free")
    put(app, "/search", limited("1/minute")(hello))
    for path in ("/", "/wrapped", "/search"):
        with pytest.raises(HeadgateError, match="has limits, and the app has none"), app.test_request_context(path):
            app.dispatch_request()
    assert statuses(app, "/free", "/free") == [200, 200]


def test_limits_that_another_decorator_hides_are_asked_when_the_view_is_called():
    """It has no functools.wraps; they are one decision still, and a refusal gives back what was charged before."""

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
    """The function counts under its own name, at any endpoint."""
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
    """The mistake is not told only at the first request."""
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
    """A read of the session makes the response vary by its cookie, and may query a database."""
    asked = []

    def user() -> str:
        asked.append(request.path)
        return "ann"

    app = make(policy_of("9/minute"), user=user)
    put(app, "/", limited("9/minute")(hello))
    put(app, "/own", limited("1/minute", key="user")(hello))
    assert statuses(app, "/", "/own") + statuses(app, "/own", ip="203.0.113.10") == [200, 200, 429]
    assert asked == ["/own", "/own"]


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


def test_methods_that_a_client_invents_take_no_memory():
    """A rule of Werkzeug's own takes every method; all are one count, and none is kept."""
    app = make()
    app.url_map.add(Rule("/any", endpoint="any"))
    app.view_functions["any"] = limited("3/minute")(hello)
    assert statuses(app, "/any", method="GET") + statuses(app, "/any", method="MADEUP") == [200, 200]
    client = app.test_client()  # one: each makes a class, which a free-threaded 3.13 keeps for good
    tracemalloc.start()
    try:
        told = {client.open("/any", method=f"MADEUP{number}").status_code for number in range(1000)}
        for _ in range(2):  # without the GIL, what the first collection ends is freed by the second
            gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 150_000
    finally:
        tracemalloc.stop()
    assert told == {200, 429}
