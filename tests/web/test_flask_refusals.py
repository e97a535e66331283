"""Flask: what the app's error handlers make of a refusal, and the fields of every response."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Blueprint, Response
from werkzeug.exceptions import HTTPException

from headgate.web.flask import RateLimitExceeded, limited
from tests.web.test_flask import fields_of, hello, make, put, statuses

pytestmark = pytest.mark.engineless


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


def test_one_response_that_is_sent_every_time_has_each_field_once():
    """As an app may keep it."""
    app, kept = make(default="3/minute"), Response("kept")
    put(app, "/", lambda: kept)
    assert [fields_of(app)["ratelimit"] for _ in range(3)] == [
        f'"index";r={left};t={t}' for left, t in ((2, 20), (1, 40), (0, 60))
    ]


def test_fields_are_named_for_scripts_where_the_app_lets_them_in():
    """The fields of a refusal are named too, beside those that are exposed already."""
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
