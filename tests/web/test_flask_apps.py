"""Flask: one extension for several apps, their settings, and the reloader."""

from __future__ import annotations

import contextlib
import http.client
import os
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, current_app, g, request

import headgate
from headgate import MemoryStore
from headgate.errors import HeadgateError, InvalidCall
from headgate.testing import reset_all
from headgate.web.flask import RateLimitExceeded, RateLimits, limited
from headgate.web.refusal import Refusal
from tests.support.edges import still
from tests.support.servers import wait_until
from tests.support.serving import serving
from tests.web.test_flask import fields_of, hello, make, policy_of, put, statuses

pytestmark = pytest.mark.engineless


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


def test_a_view_that_passes_its_environ_on_to_another_app():
    """Each app adds its own fields, and hidden limits that are asked afterwards are the outer app's."""
    inner, outer = make(default="9/minute"), make()
    put(inner, "/")
    hidden = limited("5/minute", name="hidden")(hello)

    def passing() -> Response:
        told: list[tuple[str, str]] = []
        body = b"".join(inner(request.environ, lambda status, headers: told.extend(headers)))
        hidden()
        return Response(body, headers=told)

    put(outer, "/", passing)
    fields = outer.test_client().get("/").headers.getlist("RateLimit")
    assert fields == ['"index";r=8;t=7', '"hidden";r=4;t=12']


def test_a_response_counts_as_the_functions_after_the_request_leave_it():
    """Functions that were registered before the extension are called last, and change the response all the same."""
    app = Flask("shop")

    @app.after_request
    def hide(response: Response) -> Response:
        response.status_code = 401
        return response

    RateLimits(app, store=still())
    put(app, "/", limited("1/minute", count={"when": {"status": 401}})(hello))
    assert statuses(app, "/", "/") == [401, 401]
    assert [app.test_client().get("/").headers["RateLimit"] for _ in range(2)] == ['"index";r=0;t=60'] * 2


def test_a_context_without_a_server_holds_a_permit_until_it_ends():
    """A unit test may call a view by itself: no response is sent that could end the request."""
    app = make()
    view = limited("1 in flight")(hello)
    put(app, "/", view)
    for _ in range(3):
        with app.test_request_context("/"):
            assert view() == "hello"
            with pytest.raises(RateLimitExceeded), app.test_request_context("/"):
                view()


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


SERVED = """
from flask import Flask
from headgate.web.flask import RateLimitExceeded, RateLimits, limited

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
    (tmp_path / "watchdog.py").touch()  # where it is installed, it does not see a file that changes while it starts
    command = ("flask", "--app=served", "run", "--debug", "--host=unix://{socket}")
    paths = os.pathsep.join([str(tmp_path), str(Path(headgate.__file__).resolve().parents[1])])
    source = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
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
