"""`POST /v1/check`: questions of programs, hostile ones included, and the document that describes them."""

from __future__ import annotations

import json

import jsonschema  # type: ignore[import-untyped]
import pytest

from headgate import Decision, Limiter
from headgate.edge.openapi import DECISION, document
from tests.support.asked import InProcess

pytestmark = pytest.mark.engineless


POLICY = {
    "rules": [
        {"name": "api", "match": {"path": "/api/**"}, "key": "ip", "limits": {"default": "2/hour", "pro": "3/hour"}},
        {"name": "user", "match": {"path": "/me"}, "key": "user", "limits": "1/hour"},
        {"name": "key", "match": {"path": "/key"}, "key": {"header": "x-key"}, "limits": "1/hour"},
        {"name": "slow", "match": {"path": "/slow"}, "key": "ip", "limits": "1/minute", "act": {"delay": {"hold": 2}}},
        {"name": "odd", "match": {"path": "/odd"}, "key": "ip", "limits": "1/hour", "act": "mark"},
    ],
    "deny": {"path": "/denied"},
}


@pytest.fixture
def app():
    """A service with a policy."""
    return InProcess(POLICY)


def test_an_answer_has_every_field_of_a_decision(app):
    """Under the same names, with null for a wait that never ends; those of the policy say what to send the client."""
    limiter = Limiter("10/minute; 100/hour as hour")
    decision = limiter.hit("k", 3)
    public = {name for name in dir(decision) if not name.startswith("_") and not callable(getattr(decision, name))}
    status, answer = app.question({"limit": "10/minute; 100/hour as hour", "key": "k", "cost": 3})
    assert status == 200 and answer.keys() == public == DECISION.keys()
    for name in public - {"binding", "calls", "verdicts", "costs"}:
        assert answer[name] == getattr(decision, name), name
    assert answer["binding"] == str(decision.binding)
    assert answer["calls"][1] == {"limit": "100/hour as hour", "key": "k", "cost": 3}
    assert answer["verdicts"][1] == {"allowed": True, "remaining": 97, "retry_us": 0, "reset_us": 108_000_000}
    _, never = app.question({"limit": "10/minute", "key": "k", "cost": 11})
    assert (never["allowed"], never["never"], never["retry_after"], never["retry_us"]) == (False, True, None, None)
    assert isinstance(decision, Decision)


def test_a_marked_request_passes_and_the_answer_names_the_rule(app):
    """The caller learns of `act: mark`, as an endpoint does."""
    answers = [app.question({"path": "/odd", "ip": "1.2.3.4"})[1] for _ in range(2)]
    told = [(each["allowed"], each["status"], each["marks"]) for each in answers]
    assert told == [(True, 204, []), (True, 204, ["odd"])]


def test_a_request_is_ruled_on_as_it_is_described(app):
    """Method, path, address, headers, user and plan; the answer names the rule, the status and the header fields."""
    pro = {"path": "/api/x?y=1", "ip": "1.2.3.4", "plan": "pro"}
    assert [app.question(pro)[1]["allowed"] for _ in range(4)] == [True, True, True, False]
    _, no = app.question(pro)
    assert (no["status"], no["rule"], no["headers"]["retry-after"]) == (429, "api", "1200")
    _, free = app.question({"path": "/api/x", "ip": "1.2.3.5"})
    assert (free["status"], free["remaining"], free["headers"]["ratelimit"]) == (204, 1, '"api";r=1;t=1800')
    assert [app.question({"path": "/me", "user": each})[1]["allowed"] for each in "aab"] == [True, False, True]
    keyed = [app.question({"path": "/key", "headers": {"X-Key": each}})[1]["allowed"] for each in "aab"]
    assert keyed == [True, False, True]
    _, denied = app.question({"path": "/denied"})
    assert (denied["allowed"], denied["status"], denied["limit"]) == (False, 403, None)
    _, other = app.question({"path": "/other"})
    assert (other["allowed"], other["rule"], other["binding"], other["headers"]) == (True, None, None, {})


def test_a_header_of_a_question_is_the_clients(app):
    """An address in a header does not replace the one in `ip`, even if that is loopback."""
    asked = [{"path": "/api/x", "ip": "127.0.0.1", "headers": {"X-Forwarded-For": f"1.1.1.{at}"}} for at in range(3)]
    assert [each["allowed"] for each in app.question(asked)[1]] == [True, True, False]


def test_a_delay_is_told_and_not_waited_for(app):
    """The caller holds the request."""
    found = [app.question({"path": "/slow", "ip": "1.1.1.1"})[1] for _ in range(3)]
    assert [(each["allowed"], round(each["delay"])) for each in found] == [(True, 0), (True, 60), (False, 0)]


def test_a_list_is_answered_in_order(app):
    """Each question is a decision of its own; a peek counts nothing."""
    plain = {"limit": "2/hour", "key": "k"}
    asked = [plain, {**plain, "peek": True}, plain, plain, {"path": "/other"}, {**plain, "key": "other"}]
    status, answers = app.question(asked)
    assert [each["allowed"] for each in answers] == [True, True, True, False, True, True]
    assert [each["remaining"] for each in answers] == [1, 1, 0, 0, None, 1]
    assert status == 200


@pytest.mark.parametrize(
    ("question", "at", "told"),
    [
        (3, "", "expected an object; got 3"),
        ({"limit": "5/minute"}, "", "a plain question needs 'key'"),
        ({"key": "k"}, "", "a plain question needs 'limit'"),
        ({"limit": "5/fortnite", "key": "k"}, "limit", "fortnite"),
        ({"limit": "5 in flight", "key": "k"}, "limit", "needs the end of each request"),
        ({"limit": "5/minute", "key": "k", "cost": -1}, "cost", "expected a whole number from 0"),
        ({"limit": "5/minute", "key": "k", "cost": True}, "cost", "expected a whole number from 0"),
        ({"limit": "5/minute", "key": "k", "peek": 1}, "peek", "expected true or false"),
        ({"limit": "5/minute", "key": "k" * 5000}, "key", "expected a text of 1 to 4096 characters"),
        ({"limit": "5/minute", "key": "\ud800"}, "key", "expected a text"),
        ({"pth": "/"}, "pth", "unknown field; did you mean 'path'?"),
        ({"path": "x"}, "path", "expected a path that begins with /"),
        ({"headers": {"k": ["v"] * 101}}, "headers", "expected at most 100 lines of the header 'k'; got 101"),
        ({"ip": "somewhere"}, "ip", "expected an IP address"),
        ({"headers": {"a": 1}}, "headers", "expected a text, or a list of texts"),
    ],
)
def test_a_question_that_cannot_be_read_is_explained(app, question, at, told):
    """Field by field; in a list, no question is counted then, whichever of them is wrong."""
    status, answer = app.question(question)
    assert status == 422 and answer["mistakes"][0]["at"] == at and told in answer["mistakes"][0]["detail"]
    good = {"limit": "1/hour", "key": "k"}
    status, answer = app.question([good, question])
    assert status == 422 and answer["mistakes"][0]["at"] == f"[1].{at}".rstrip(".")
    assert app.question({**good, "peek": True})[1]["remaining"] == 1


@pytest.mark.parametrize("body", [b"", b"nope", b"\xff", b"[" * 100_000, b"NaN", b"1" * 5000, b'{"cost": Infinity}'])
def test_a_body_that_is_not_json_is_refused(app, body):
    """Text, bytes, a deep nest and numbers that JSON does not have."""
    status, _, told = app.ask("POST", "/v1/check", body=body)
    assert (status, json.loads(told)["status"]) in ((400, 400), (422, 422))


def test_the_size_of_a_request_is_bounded(app):
    """More than a megabyte, or more than 100 questions."""
    assert app.ask("POST", "/v1/check", body=b" " * 1_048_577)[0] == 413
    assert app.question([{"path": "/"}] * 101)[0] == 422
    assert app.question([])[0] == 422
    assert len(app.question([{"path": "/"}] * 100)[1]) == 100


def test_the_number_of_limits_that_callers_invent_is_bounded(app):
    """One hundred different limits; those that are known still answer, and the policy is untouched."""
    assert {app.question({"limit": f"{at + 1}/hour", "key": "k"})[0] for at in range(100)} == {200}
    status, answer = app.question({"limit": "101/hour", "key": "k"})
    assert status == 422 and "100 different limits already" in answer["mistakes"][0]["detail"]
    assert app.question({"limit": "2/hour", "key": "other"})[1]["allowed"]
    assert app.question({"path": "/api/x", "ip": "1.2.3.4"})[1]["allowed"]


def test_the_document_describes_the_answers(app):
    """Every answer fits its schema; a service without a policy has neither /check nor questions to rules."""
    _, _, body = app.ask("GET", "/openapi.json")
    told = json.loads(body)
    post = told["paths"]["/v1/check"]["post"]
    for question in ({"path": "/api/x"}, {"limit": "5/hour", "key": "k"}, [{"path": "/denied"}], {"x": 1}):
        status, answer = app.question(question)
        (content,) = post["responses"][str(status)]["content"].values()
        jsonschema.validate(answer, content["schema"], jsonschema.Draft202012Validator)
    alone = document(has_policy=False, has_token=True)
    assert "/check" not in alone["paths"] and alone["security"] == [{"token": []}]
