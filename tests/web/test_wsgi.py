"""WSGI: what passes is untouched, what is refused is told, and nothing of ours ever fails a request."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any
from wsgiref.validate import validator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.web.wsgi import RateLimitMiddleware
from tests.support.adapters.bare import WsgiSuite
from tests.support.edges import PEER, environ, of_everything, still, wsgi


def hello(environ: Any, start_response: Any) -> Iterable[bytes]:
    """200 and two words."""
    start_response("200 OK", [("X-App", "1")])
    return [b"hello ", b"world"]


def limited(app: Any = hello, **fields: Any) -> RateLimitMiddleware:
    """An app behind one rule, two a minute, by a clock that stands still."""
    edge = {"user": fields.pop("user")} if "user" in fields else {}
    rule = {"name": "api", "key": "ip", "limits": "2/minute", **fields}
    return RateLimitMiddleware(app, {"rules": [rule]}, store=still(), **edge)


class TestSuite(WsgiSuite):
    """What every edge does, in front of an app that is a function."""


def test_the_contract_of_wsgi_is_kept():
    """The validator of the standard library finds nothing, on both sides."""
    served: dict[str, Any] = {
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.multithread": True, "wsgi.multiprocess": True,
        "wsgi.run_once": False, "SERVER_NAME": "x", "SERVER_PORT": "80", "SCRIPT_NAME": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }  # fmt: skip

    def texted(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    app = validator(limited(validator(texted), count={"when": {"status": 401}}))
    for _ in range(3):
        streams = {"wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO()}
        assert wsgi(app, **served, **streams).status == 200


def test_a_stream_passes_piece_by_piece_and_is_closed():
    """The app's own iterable is what the server gets."""
    closed: list[str] = []

    class Pieces:
        def __iter__(self) -> Any:
            return iter([b"a", b"", b"\0\xff"])

        def close(self) -> None:
            closed.append("closed")

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return Pieces()

    assert wsgi(limited(app, count={"when": {"status": 200}})).body == b"a\0\xff"
    assert closed == ["closed"]


def test_where_no_rule_applies_the_app_gets_the_very_same_things():
    """Nothing is wrapped, nothing is copied."""
    seen: list[Any] = []

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        seen.extend((environ, start_response))
        return []

    given_, start = environ(), object()
    limited(app, match={"path": "/other"})(given_, start)
    assert seen[0] is given_ and seen[1] is start


def test_write_and_exc_info_work_as_they_did():
    """The callable that start_response returns, and headers that are exchanged after an error."""

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        write = start_response("500 Sorry", [("X-App", "2")], (ValueError, ValueError(), None))
        write(b"written")
        return [b", returned"]

    answer = wsgi(limited(app))
    assert (answer.status, answer.body, answer.fields["x-app"]) == (500, b"written, returned", "2")


@pytest.mark.parametrize("kind", ["function", "generator"])
def test_an_exception_of_the_apps_is_the_apps(kind):
    """It passes as it is, and what was reserved for a 401 is given back: there was none."""

    def function(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise LookupError("mine")

    def generator(environ: Any, start_response: Any) -> Iterable[bytes]:
        yield from function(environ, start_response)

    app = limited({"function": function, "generator": generator}[kind], count={"when": {"status": 401}})
    for _ in range(5):
        with pytest.raises(LookupError, match="mine"):
            wsgi(app)


def test_a_generator_that_answers_late_is_counted_by_its_status():
    """start_response is called when the first piece is asked for."""

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response(environ["PATH_INFO"][1:] + " Status", [])
        yield b""

    counted = limited(app, count={"when": {"status": 401}})
    paths = ["/200"] * 5 + ["/401"] * 2 + ["/200"]
    assert [wsgi(counted, "GET", path).status for path in paths] == [200] * 5 + [401] * 2 + [429]


def test_who_it_is():
    """REMOTE_USER, or what the app says."""
    app = limited(key="user", missing="deny", limits="1/minute")
    assert [wsgi(app, REMOTE_USER=name).status for name in ("ann", "ann", "bob")] == [200, 429, 200]
    assert wsgi(app).status == 403
    told = limited(key="user", missing="deny", user=lambda environ: environ["HTTP_X_USER"], limits="1/minute")
    assert [wsgi(told, headers={"X-User": name}).status for name in ("ann", "ann", "bob")] == [200, 429, 200]


def test_paths_are_what_the_app_routes_in_utf_8():
    """Mounted or not, and whatever bytes it has."""
    rule = {"match": {"path": "/shop/ü"}, "limits": "1/minute"}
    asked = [
        {"SCRIPT_NAME": "/mall", "path": "/shop/Ã¼"},
        {"path": "/shop/Ã¼"},
        {"path": "/shop/\xff"},
        {"path": ""},
    ]
    app = limited(**rule)
    assert [wsgi(app, **each).status for each in asked] == [200, 429, 200, 200]


TEXTS = st.text(st.characters(max_codepoint=255), max_size=40)
NAMES = st.sampled_from(["Host", "Cookie", "Accept", "X-Forwarded-For", "Forwarded", "X-Key", "X-Plan", ""])


@settings(max_examples=300)
@given(
    path=TEXTS,
    method=st.sampled_from(["GET", "POST", "*"]) | st.text(max_size=5),
    headers=st.dictionaries(NAMES | TEXTS, TEXTS, max_size=6),
    query=TEXTS,
    peer=st.sampled_from([PEER, "10.0.0.1", ""]) | TEXTS,
    limit=st.sampled_from([1, 1000]),
)
def test_no_request_is_ever_an_error_of_ours(path, method, headers, query, peer, limit):
    """Whatever is sent: 200 or a refusal."""
    app = RateLimitMiddleware(hello, of_everything(limit), store=still(), trusted_proxies=["10.0.0.0/8"])
    asked = [wsgi(app, method, path, headers, QUERY_STRING=query, REMOTE_ADDR=peer).status for _ in range(2)]
    assert asked in ([200, 200], [200, 429], [400, 400])
