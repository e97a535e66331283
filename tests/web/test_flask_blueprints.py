"""Flask: default limits, limits of blueprints and of classes of views, and what is exempt from them."""

from __future__ import annotations

from typing import ClassVar

import pytest
from flask import Blueprint
from flask.views import MethodView, View

from headgate.web.flask import exempt, limited
from tests.web.test_flask import fields_of, hello, make, put, statuses

pytestmark = pytest.mark.engineless


def test_default_limits_leave_files_preflights_redirects_and_errors_of_routing_alone():
    """A page needs many files; a browser asks beforehand; nobody is charged twice for a slash."""
    app = make(default="1/minute")
    put(app, "/page/", hello, "page", methods=["GET", "PUT"])
    assert statuses(app, "/static/a.css", "/static/b.css") == [404, 404]
    assert statuses(app, "/page/", "/page/", method="OPTIONS") == [200, 200]
    assert statuses(app, "/page", "/page", "/missing", "/missing") == [308, 308, 404, 404]
    assert statuses(app, "/page/", method="DELETE") == [405]
    assert statuses(app, "/page/", "/page/") == [200, 429]


def test_a_view_that_answers_options_itself_is_limited_for_it():
    """Only Flask's own answer to a browser's question is free."""
    app = make(default="1/minute")
    put(app, "/page/", hello, "page", methods=["OPTIONS"])
    assert statuses(app, "/page/", "/page/", method="OPTIONS") == [200, 429]


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
