"""The playground's server: only its own page reaches it, pages are bounded, and a world ends with its page."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from headgate.playground.app import App
from headgate.playground.pages import MOST_PAGES

HOST = "127.0.0.1:8642"


@pytest.fixture
def app():
    app = App([HOST])
    yield app
    app.closing.set()


def call(app, method, path, *, body=b"", token=None, query="", **fields):
    """Status, header fields and content; of a stream, its generator."""
    told: dict[str, Any] = {}
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": HOST,
        "REMOTE_ADDR": "127.0.0.1", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body),
        "SERVER_PROTOCOL": "HTTP/1.1", **fields,
    }  # fmt: skip
    if token is not None:
        environ["HTTP_X_HEADGATE_TOKEN"] = token
    content = app(environ, lambda status, headers, *_: told.update(status=status, headers=dict(headers)))
    return int(told["status"][:3]), told["headers"], content if path == "/events" else b"".join(content)


def open_page(app):
    """An open page: its name, and its stream of events."""
    _, _, stream = call(app, "GET", "/events", token=app.token)
    return json.loads(next(stream).split(b"data: ")[1]), stream


def act(app, page, action, value=None):
    body = json.dumps({"page": page, "do": action, "value": value}).encode()
    status, _, content = call(app, "POST", "/act", body=body, token=app.token)
    return status, json.loads(content)


def test_the_page_has_the_token_and_no_asset_from_elsewhere(app):
    """The token of this run is in the page alone; the policy of the page allows only its own files."""
    status, headers, page = call(app, "GET", "/")
    assert status == 200 and app.token.encode() in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    size = 0
    for path in ("/", "/style.css", "/script.js", "/drawing.js"):
        status, _, content = call(app, "GET", path)
        assert status == 200
        assert b"http://" not in content and b"https://" not in content
        size += len(content)
    assert size < 60_000


@pytest.mark.parametrize(
    "fields",
    [
        {"HTTP_HOST": "evil.example"},
        {"HTTP_HOST": "evil.example:8642"},
        {"HTTP_HOST": ""},
        {"HTTP_ORIGIN": "http://evil.example"},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": "https://127.0.0.1:8642"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/events", "/act", "/log", "/api/hello"])
def test_foreign_hosts_and_origins_are_refused(app, path, fields):
    """A name that resolves to this machine, and a script of another site, get nothing."""
    method = "POST" if path in ("/act", "/log") else "GET"
    status, _, content = call(app, method, path, token=app.token, **fields)
    assert status == 403
    assert app.token.encode() not in (content if isinstance(content, bytes) else b"".join(content))


@pytest.mark.parametrize("token", [None, "", "guess", "é"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/events"), ("POST", "/act"), ("POST", "/log")])
def test_without_the_token_nothing_moves(app, method, path, token):
    """Another program on this machine that knows the port is not enough."""
    status, _, _ = call(app, method, path, token=token)
    assert status == 403
    assert len(app.pages) == 0


def test_a_world_ends_with_its_page(app):
    """A stream that is closed, as the server does when the page is gone, frees its world."""
    page, stream = open_page(app)
    assert len(app.pages) == 1
    stream.close()
    assert len(app.pages) == 0
    assert act(app, page, "attack") == (400, {"error": "this page is closed: load it again"})


def test_pages_are_bounded(app):
    """The page after the last is told so, and a closed one makes room."""
    streams = [open_page(app)[1] for _ in range(MOST_PAGES)]
    status, _, content = call(app, "GET", "/events", token=app.token)
    assert status == 503 and b"too many pages" in b"".join(content)
    streams.pop().close()
    streams.append(open_page(app)[1])
    assert len(app.pages) == MOST_PAGES


def test_a_page_gets_its_head_and_then_frames(app):
    """The head tells what stays, and comes again when something of it changes."""
    page, stream = open_page(app)
    head = next(stream)
    assert head.startswith(b"event: head\n") and b'"limit":"10/10 seconds"' in head
    assert next(stream).startswith(b"event: frame\n")
    assert act(app, page, "limit", "5/10s") == (200, {"told": None})
    assert b'"limit":"5/10 seconds"' in next(stream)
    stream.close()


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("explode", None), ("limit", "10/10x"), ("limit", 5), ("rate", "fast"), ("rate", True), ("speed", None),
        ("answer", [9, 1]), ("answer", [0]), ("answer", "x"), ("answer", [0, 10**30]), ("client", "nobody"),
        ("traffic", []),
    ],
)  # fmt: skip
def test_what_a_page_cannot_ask_for_is_refused_in_words(app, action, value):
    """400 and a sentence, for everything that is not an action of the page."""
    page, stream = open_page(app)
    status, told = act(app, page, action, value)
    assert status == 400 and told["error"]
    stream.close()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"[" * 5000, b"\xff\xfe", b"{}"])
def test_bodies_that_are_no_action_are_refused(app, body):
    """Whatever another program posts."""
    assert call(app, "POST", "/act", body=body, token=app.token)[0] == 400


def test_bodies_are_bounded(app):
    """A length above the bound is refused before a byte of it is read."""
    for length in ("99999999999", "-1", "many"):
        status, _, content = call(app, "POST", "/log", token=app.token, query="page=x", CONTENT_LENGTH=length)
        assert status == 400 and b"error" in content


def test_a_log_of_the_user_is_replayed_from_its_busiest_client(app):
    """Any format of the lab; the clients come back with their numbers, hostile names escaped."""
    page, stream = open_page(app)
    lines = "".join(
        f'{key} - - [12/May/2024:00:00:{second:02} +0000] "GET / HTTP/1.1" 200 5\n'
        for second, key in enumerate(["a", "b", "b", "x\u202e", "b"])
    )
    status, _, content = call(app, "POST", "/log", body=lines.encode(), token=app.token, query=f"page={page}")
    told = json.loads(content)["told"]
    assert status == 200
    assert told[0] == {"key": "b", "name": "b", "requests": 3}
    assert {each["name"] for each in told} == {"a", "b", "x\\u202e"}
    assert b'"traffic":"log"' in next(stream)
    assert act(app, page, "client", "a") == (200, {"told": None})
    stream.close()


@pytest.mark.parametrize("content", [b"", b"hello\nworld\n", b"\x00" * 100])
def test_a_file_that_is_no_log_is_told_so(app, content):
    """The error is that of the readers of the lab."""
    page, stream = open_page(app)
    status, _, told = call(app, "POST", "/log", body=content, token=app.token, query=f"page={page}")
    assert status == 400 and json.loads(told)["error"]
    stream.close()


def test_the_live_endpoint_is_behind_the_real_middleware(app):
    """Five pass in 30 s; the sixth is the 429 of the WSGI edge, with its fields."""
    answers = [call(app, "GET", "/api/hello") for _ in range(6)]
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    assert answers[0][1]["RateLimit"] == '"hello";r=4;t=6'
    assert answers[5][1]["Retry-After"] == "6"
