"""Refusals: their status, body and fields, whichever content type the client accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import HeadgateError, Limit, Limiter
from headgate.engine import Decision
from headgate.testing import ManualClock
from headgate.web import refusal as web
from headgate.web.headers import ASGI, WSGI, headers_for
from headgate.web.refusal import JSON, PROBLEM, TEXT, Reason, Refusal, negotiate

pytestmark = pytest.mark.engineless

TYPES = "https://iana.org/assignments/http-problem-types"
CHROME = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
WORDS = "2/second as fast; 9/hour as slow"


def answer(words: str, *rows: tuple[int, int, int, int]) -> Decision:
    """A decision with these answers: allowed, remaining, retry us, reset us."""
    limits = Limit.parse_all(words)
    return Decision(limits, "k", (1,) * len(limits), [number for row in rows for number in (*row, 0, 0)])


ONE = answer("2/second as fast", (0, 0, 11_000_001, 20_000_000))
BOTH = answer(WORDS, (0, 0, 500_000, 1_000_000), (0, 0, 11_000_001, 3_600_000_000))
SLOW = answer(WORDS, (1, 2, 0, 0), (0, 0, 11_000_001, 3_600_000_000))
NEVER = answer(WORDS, (0, 2, -1, 0), (1, 9, 0, 0))


def refused(words, decision, accept=None, retry_after=None, body=None, content_type=None, **told):
    """Status, fields and body over the limits of these words."""
    compiled = Refusal(body, content_type).compile(headers_for(("draft-11",), WSGI), WSGI)
    status, pairs, sent = compiled(Limit.parse_all(words) if words else (), **told)(decision, accept, retry_after)
    fields = dict(pairs)
    assert len(fields) == len(pairs)
    assert fields.pop("Content-Length") == str(len(sent))
    assert fields.pop("Cache-Control") == "no-store"
    return status, fields, sent


def test_refusals_of_an_overloaded_server_are_written_once_and_sent_often():
    """Each content type and each wait has its own refusal, and a field that an edge adds to one is not sent again."""

    def compiled():
        return Refusal().compile(headers_for(("draft-11",), WSGI), WSGI)((), reason=web.CAPACITY)

    asked = [(accept, wait) for accept in (None, "*/*", JSON, b"text/plain") for wait in (None, 1.0, 2, 30)]
    fresh = [compiled()(None, *each) for each in asked]
    assert len({(body, str(pairs)) for _, pairs, body in fresh}) == 12
    same = compiled()
    for _ in range(3):
        answers = [same(None, *each) for each in asked]
        assert answers == fresh
        for _, pairs, _ in answers:
            pairs.append(("Access-Control-Allow-Origin", "*"))


def test_a_refusal_from_end_to_end():
    """A client that hits a limiter once too often gets this response."""
    limiter = Limiter("1/minute", clock=ManualClock(1e9))
    limiter.hit("k")
    compiled = Refusal().compile(headers_for(("draft-11",), ASGI), ASGI)
    assert compiled((Limit.parse("1/minute"),), "api")(limiter.hit("k"), b"application/json") == (
        429,
        [
            (b"ratelimit-policy", b'"api";q=1;w=60'),
            (b"ratelimit", b'"api";r=0;t=60'),
            (b"retry-after", b"60"),
            (b"cache-control", b"no-store"),
            (b"content-type", b"application/json"),
            (b"content-length", b"46"),
        ],
        b'{"error": "quota-exceeded", "retry_after": 60}',
    )


@pytest.mark.parametrize(
    ("accept", "offer"),
    [
        (None, PROBLEM), ("", PROBLEM), ("*/*", PROBLEM), (b"*/*", PROBLEM), (CHROME, PROBLEM),
        ("application/problem+json", PROBLEM), ("application/json", JSON), (b"application/json", JSON),
        ("text/plain", TEXT), ("APPLICATION/JSON", JSON), ("application/*", PROBLEM), ("text/*", TEXT),
        ("application/json, text/plain", JSON), ("text/plain, application/json", JSON),
        ("text/plain, application/json;q=0.9", TEXT), ("text/plain;q=0.5, application/json;q=0.501", JSON),
        ("application/json, */*;q=0.1", JSON), ("application/problem+json;q=0, */*", JSON),
        ("application/*;q=0, */*", TEXT), ("application/*;q=0.2, text/*;q=0.3", TEXT),
        ("application/json;q=0", PROBLEM), ("*/*;q=0", PROBLEM), ("image/png", PROBLEM), ("text/html", PROBLEM),
        ("application/json;charset=utf-8", JSON), ("application/json ; charset=utf-8 ; Q=1.000", JSON),
        (" \tapplication/json\t", JSON), (",,, application/json ,,", JSON), ("application/json;", JSON),
        # What cannot be read counts as not accepted, and never as an error.
        ("application/json;q=2, text/plain;q=0.1", TEXT), ("application/json;q=-1, text/plain;q=0.1", TEXT),
        ("application/json;q=nan, text/plain;q=0.1", TEXT), ("application/json;q=, text/plain;q=0.1", TEXT),
        ("application/json;q=1e0, text/plain;q=0.1", TEXT), ("application/json;q=0.1234, text/plain;q=0.1", TEXT),
        ("application/json;q=\u0660, text/plain;q=0.1", TEXT), ("xapplication/json", PROBLEM),
        ("application/jsonx", PROBLEM), ('text/html;a="x, application/json"', PROBLEM), ("application / json", PROBLEM),
        ("text", PROBLEM), ("/", PROBLEM), ("*", PROBLEM), (";q=1", PROBLEM), ("\r\ntext/plain", PROBLEM),
        (b"\xff\xfe\0", PROBLEM),
        # Bounded: what is too long is not read, nor are more ranges than anybody sends.
        ("application/json" + " " * 240, JSON), ("application/json" + " " * 241, PROBLEM),
        ("text/plain," * 15 + "application/json", JSON), ("text/plain," * 16 + "application/json", TEXT),
    ],
)  # fmt: skip
def test_a_ledger_of_accept(accept, offer):
    """The best quality wins, the most specific range speaks, the first of ours breaks ties and serves all others."""
    assert negotiate(accept) == offer
    if isinstance(accept, str) and accept.isascii():
        assert negotiate(accept.encode()) == offer


pieces = st.sampled_from(
    ["application/json", "text/plain", "*/*", ";", "q=", "0.5", ",", " ", '"', "\\", "=", "\0", "é"]
)


@given(st.one_of(st.text(), st.binary(), st.lists(pieces, max_size=60).map("".join)))
def test_any_accept_gets_an_answer(accept):
    """Whatever a client sends: one of three, and no error."""
    assert negotiate(accept) in web.OFFERS


def test_a_ledger_of_bodies():
    """Each kind of body: with a wait, where no wait helps, and where none is told."""
    title = "The quota is used up"
    never = "No wait helps: it asks for more than can ever pass at once."

    def problem(detail: str, **more: list[str]) -> dict[str, object]:
        return {"type": f"{TYPES}#quota-exceeded", "title": title, "status": 429, **more, "detail": detail}

    ledger: list[tuple[Decision, Any, dict[str, list[str]], str, dict[str, int | None]]] = [
        (BOTH, "full", {"violated-policies": ["fast", "slow"]}, "Retry after 12 s.", {"retry_after": 12}),
        (SLOW, "full", {"violated-policies": ["slow"]}, "Retry after 12 s.", {"retry_after": 12}),
        (NEVER, "full", {"violated-policies": ["fast"]}, never, {"retry_after": None}),
        (BOTH, ("full", "retry"), {"violated-policies": ["fast"]}, "Retry after 12 s.", {"retry_after": 12}),
        (BOTH, ("full", "none"), {"violated-policies": ["fast"]}, "Try again later.", {}),
        (BOTH, "retry", {}, "Retry after 12 s.", {"retry_after": 12}),
        (NEVER, "retry", {}, never, {"retry_after": None}),
        (BOTH, "none", {}, "Try again later.", {}),
        (NEVER, "none", {}, "Try again later.", {}),
    ]
    for decision, disclose, violated, detail, retry in ledger:
        status, fields, body = refused(WORDS, decision, disclose=disclose)
        assert (status, fields["Content-Type"], json.loads(body)) == (429, PROBLEM, problem(detail, **violated))
        assert fields.get("Retry-After") == (str(retry["retry_after"]) if retry.get("retry_after") else None)
        status, fields, body = refused(WORDS, decision, JSON, disclose=disclose)
        assert (status, fields["Content-Type"]) == (429, JSON)
        assert json.loads(body) == {"error": "quota-exceeded", **retry}
        status, fields, body = refused(WORDS, decision, TEXT, disclose=disclose)
        assert (status, fields["Content-Type"]) == (429, "text/plain; charset=utf-8")
        assert body.decode() == f"{title}. {detail}\n"


@pytest.mark.parametrize(
    ("message", "said"),
    [("Ask for more", "Ask for more. "), ("Ask for more.", "Ask for more. "), ("Slow down!", "Slow down! ")],
)
def test_the_wait_is_a_sentence_after_the_message_of_a_rule(message, said):
    """A full stop is added where the message has no mark at its end."""
    _, _, text = refused("2/second as fast", ONE, TEXT, reason=web.QUOTA._replace(detail=message))
    assert text.decode().endswith(f"{said}Retry after 12 s.\n")
    _, _, problem = refused("2/second as fast", ONE, PROBLEM, reason=web.QUOTA._replace(detail=message))
    assert json.loads(problem)["detail"] == f"{said}Retry after 12 s."


def test_nothing_hidden_is_told():
    """Disclosed as none, two limits with other names and numbers are refused alike, byte for byte."""
    other = answer("7/minute as secret", (0, 3, 77_000_000, 88_000_000))
    for accept in (PROBLEM, JSON, TEXT):
        hidden = refused(WORDS, BOTH, accept, disclose="none")
        assert hidden == refused("7/minute as secret", other, accept, disclose="none")
        assert set(hidden[1]) == {"Content-Type"}
        assert not any(word in hidden[2] for word in (b"fast", b"slow", b"12"))


def test_body_and_field_tell_one_wait():
    """A wait spread over a crowd is told rounded up, in both; one that would be too early is told in neither."""
    for given_wait, told in ((None, 12), (3.0, 12), (12.5, 13), (90.0, 90), (float("inf"), 12), (float("nan"), 12)):
        _, fields, body = refused("2/second as fast", ONE, JSON, given_wait)
        assert (fields["Retry-After"], json.loads(body)["retry_after"]) == (str(told), told)


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        (web.QUOTA, 429, f"{TYPES}#quota-exceeded"),
        (web.CAPACITY, 503, f"{TYPES}#temporary-reduced-capacity"),
        (web.FORBIDDEN, 403, "about:blank"),
        (web.QUOTA._replace(status=403), 403, f"{TYPES}#quota-exceeded"),
    ],
)
def test_reasons(reason, status, kind):
    """Each has its status, its type in the registry and its title, with and without limits to blame."""
    sent, _, body = refused("2/second as fast", ONE, reason=reason)
    problem = json.loads(body)
    assert (sent, problem["status"], problem["type"], problem["title"]) == (status, status, kind, reason.title)
    assert problem["violated-policies"] == ["fast"]
    _, fields, body = refused("", None, reason=reason)
    assert (set(fields), json.loads(body).get("violated-policies")) == ({"Content-Type"}, None)
    assert json.loads(body)["detail"] == reason.advice


def test_a_server_that_sheds_says_when():
    """Without a decision the wait is the one given."""
    status, fields, body = refused("", None, TEXT, 2.5, reason=web.CAPACITY)
    assert (status, fields) == (503, {"Retry-After": "3", "Content-Type": "text/plain; charset=utf-8"})
    assert body == b"The server has less capacity than usual. Retry after 3 s.\n"


@pytest.mark.parametrize("name", ['a"b', "a\\", "100%d", "é", "a\r\nSet-Cookie: x=1", "</script>", "\0", "x" * 5000])
def test_policies_have_one_name_in_fields_and_bodies(name):
    """A hostile name is the same plain string in the body, where it is JSON, and in the field."""
    limits = Limit.parse_all("5/second")
    compiled = Refusal().compile(headers_for(("draft-11",), ASGI), ASGI)
    _, pairs, body = compiled(limits, name)(answer("5/second", (0, 0, 1, 1)), TEXT + ";q=0.1, */*")
    (told,) = json.loads(body)["violated-policies"]
    quoted = told.replace("\\", "\\\\").replace('"', '\\"').encode()
    assert dict(pairs)[b"ratelimit-policy"] == b'"%b";q=5;w=1' % quoted
    assert told.isascii() and told.isprintable() and len(told) <= 64
    assert all(b"\r" not in part and b"\n" not in part for pair in pairs for part in pair)


@pytest.mark.parametrize(
    ("body", "given_type", "sent", "sent_type"),
    [
        (b"slow \xff", None, b"slow \xff", "text/plain; charset=utf-8"),
        (b"", None, b"", "text/plain; charset=utf-8"),
        ("langsamer, ä", None, "langsamer, ä".encode(), "text/plain; charset=utf-8"),
        ("<h1>no</h1>", "text/html; charset=utf-8", b"<h1>no</h1>", "text/html; charset=utf-8"),
        ({"code": 7}, None, b'{"code": 7}', JSON),
        ({}, None, b"{}", JSON),
        ({"code": 7}, "application/vnd.api+json", b'{"code": 7}', "application/vnd.api+json"),
    ],
)
def test_the_apps_own_body_wins(body, given_type, sent, sent_type):
    """Bytes, text or a mapping, fixed or from a callable, whatever the client accepts; the fields stay."""
    for brought in (body, lambda *_: body):
        for accept in (None, TEXT, JSON):
            status, fields, got = refused("2/second as fast", ONE, accept, body=brought, content_type=given_type)
            assert (status, got, fields["Content-Type"]) == (429, sent, sent_type)
            assert (fields["Retry-After"], fields["RateLimit"]) == ("12", '"fast";r=0;t=20')


def test_a_callable_knows_why():
    """It is given the reason, the decision, and the seconds that may be told."""
    seen: list[tuple[Reason, Decision | None, int | None]] = []

    def body(reason: Reason, decision: Decision | None, seconds: int | None) -> str:
        seen.append((reason, decision, seconds))
        return "no"

    refused(WORDS, BOTH, body=body)
    refused(WORDS, BOTH, body=body, retry_after=13.0)
    refused(WORDS, BOTH, body=body, disclose="none")
    refused(WORDS, NEVER, body=body)
    refused("", None, body=body, reason=web.CAPACITY)
    assert seen == [
        (web.QUOTA, BOTH, 12),
        (web.QUOTA, BOTH, 13),
        (web.QUOTA, BOTH, None),
        (web.QUOTA, NEVER, None),
        (web.CAPACITY, None, None),
    ]


def test_bodies_and_types_that_cannot_be_sent():
    """A value that is no body is an error at the start, or where a callable returns it; a type cannot end its line."""
    for wrong in (5, ["a"], object()):
        with pytest.raises(HeadgateError, match="a body must be bytes, a str, a mapping"):
            Refusal(wrong)
    with pytest.raises(HeadgateError, match="a body must be bytes, a str, a mapping"):
        refused("2/second as fast", ONE, body=lambda *_: None)
    for kind in ("text/html\r\nX: 1", "html", "", "text/é", "text/html\n"):
        with pytest.raises(HeadgateError, match="invalid content type"):
            Refusal("no", kind)


def test_both_wires_refuse_alike():
    """ASGI has bytes and lower-case names, WSGI the usual spelling; nothing else differs."""
    for accept in (PROBLEM, JSON, TEXT):
        for brought in (None, "no", lambda *_: {"a": 1}):
            rule = Refusal(brought)
            wsgi = rule.compile(headers_for(("draft-11",), WSGI), WSGI)(Limit.parse_all(WORDS))(BOTH, accept)
            asgi = rule.compile(headers_for(("draft-11",), ASGI), ASGI)(Limit.parse_all(WORDS))(BOTH, accept.encode())
            assert asgi == (429, [(name.lower().encode(), value.encode()) for name, value in wsgi[1]], wsgi[2])


def test_a_refusal_is_made_once():
    """The same limits get the same function, and every refusal a list of its own."""
    compiled = Refusal().compile(headers_for(("draft-11",), ASGI), ASGI)
    refuse = compiled(Limit.parse_all(WORDS))
    assert compiled(Limit.parse_all(WORDS)) is refuse
    first, second = refuse(BOTH), refuse(BOTH)
    first[1].clear()
    assert refuse(BOTH) == second
