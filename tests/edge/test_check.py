"""`GET /check`: the original request, the trust in its teller, and the answers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.edge.original_request import TARGET_PATTERN, read_uri
from tests.support.asked import InProcess

pytestmark = pytest.mark.engineless


def rule(name="one", **more):
    return {"name": name, "key": "ip", "limits": "2/hour", **more}


def statuses(app, count, *more, **asked):
    return [app.check("/x", *more, **asked)[0] for _ in range(count)]


def test_the_original_request_is_ruled_on():
    """Method, path, query, host, address, header and cookie are those that the client sent to the proxy."""
    match = {"method": "POST", "path": "/a b/*", "query": {"q": "1"}, "host": "shop.example.com"}
    app = InProcess({"rules": [rule(match=match, key=["ip", {"header": "x-key"}, {"cookie": "c"}])]})
    sent = [("X-Forwarded-Host", "shop.example.com"), ("Host", "127.0.0.1:8080"), ("X-Key", "k"), ("Cookie", "c=1")]
    asked = lambda uri, *more, method="POST": app.check(uri, *(more or sent), method=method)[0]  # noqa: E731
    assert [asked("/a%20b/c?q=1") for _ in range(3)] == [204, 204, 429]
    assert asked("/a%20b/c?q=2") == 204
    assert asked("http://shop.example.com/a%20b/c?q=1") == 429
    assert asked("/a%20b/c?q=1", method="GET") == 204
    assert asked("/a%20b/c?q=1", *sent[1:]) == 204
    assert asked("/a%20b/c?q=1", *sent[:2], ("X-Key", "other"), ("Cookie", "c=1")) == 204
    assert asked("/a%20b/c?q=1", *sent) == 429


@given(
    st.one_of(st.sampled_from(["/", "*", "http://", "HTTPS://", ""]), st.text("/*?:hHtTpPsS .a\xe9")).flatmap(
        lambda start: st.text("/*?:hHtTpPsS .a\xe9").map(lambda rest: start + rest)
    )
)
def test_the_document_tells_which_targets_are_read(target):
    """A target is read if, and only if, it fits the pattern that the OpenAPI document shows."""
    assert (read_uri(target.encode("latin-1")) is not None) == bool(re.search(TARGET_PATTERN, target))


def test_a_path_is_read_as_a_server_reads_it():
    """Escapes and doubled slashes are other spellings of one path. Dots are refused: proxies differ in them."""
    app = InProcess({"rules": [rule(match={"path": "/login"})]})
    spelt = [
        "/login",
        "/%6cogin",
        "//login",
        "/login?a=1",
        "/./login",
        "/x/../login",
        "/x/%2e%2e/login",
        "/x/..",
        "/..x",
    ]
    assert [app.check(uri)[0] for uri in spelt] == [204, 204, 429, 429, 400, 400, 400, 400, 204]
    assert app.question({"path": "/x/../login"})[1]["status"] == 400


@pytest.mark.parametrize(
    ("peer", "trusted", "status"),
    [
        ("127.0.0.1", {}, 204),
        ("::1", {}, 204),
        (None, {}, 204),
        ("10.1.2.3", {}, 421),
        ("10.1.2.3", {"trusted": ("10.0.0.0/8",)}, 204),
        ("127.0.0.1", {"trusted": ("10.0.0.0/8",)}, 421),
        (None, {"trusted": ("10.0.0.0/8",)}, 421),
    ],
)
def test_only_a_trusted_proxy_may_tell_of_requests(peer, trusted, status, caplog):
    """Loopback and the unix socket by default; another peer is no yes, no refusal, and told how to be trusted."""
    app = InProcess({"rules": [rule()]}, **trusted)
    found, _, body = app.check("/x", peer=peer)
    assert found == status
    if status == 421:
        told = f"start the service with --trusted-proxy {peer or 'unix'}"
        assert told in json.loads(body)["detail"] and told in caplog.text


def test_the_client_is_found_behind_trusted_proxies():
    """The right-most address that no trusted proxy has is the client; those to its left are its own words."""
    app = InProcess({"rules": [rule()]}, trusted=("127.0.0.1", "10.0.0.0/8"))
    told = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/")]
    chains = ["1.1.1.1", "6.6.6.6, 1.1.1.1", "6.6.6.7, 1.1.1.1, 10.0.0.7", "1.1.1.1, 2.2.2.2"]
    found = [app.ask("GET", "/check", [*told, ("X-Forwarded-For", each)])[0] for each in chains]
    assert found == [204, 204, 429, 204]
    lines = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "1.1.1.1")]
    assert app.ask("GET", "/check", [*told, *lines])[0] == 429
    long = ", ".join(["6.6.6.6"] * 40 + ["1.1.1.1"])
    assert app.ask("GET", "/check", [*told, ("X-Forwarded-For", long)])[0] == 429


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-Forwarded-Method", "GET")],
        [("X-Forwarded-Uri", "/x")],
        [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "nonsense")],
        [("X-Forwarded-Method", "G" * 33), ("X-Forwarded-Uri", "/x")],
        [("X-Forwarded-Method", ""), ("X-Forwarded-Uri", "/x")],
        [("X-Forwarded-Method", "GET /"), ("X-Forwarded-Uri", "/x")],
        [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/x"), ("X-Forwarded-Uri", "/y")],
        [("X-Forwarded-Method", "GET"), ("X-Forwarded-Method", "PUT"), ("X-Forwarded-Uri", "/x")],
    ],
)
def test_a_question_without_a_request_is_not_answered(headers, caplog):
    """400, which no proxy takes for a yes; the log tells it once, since the proxy does not."""
    app = InProcess({"rules": [rule()]})
    assert [app.ask("GET", "/check", headers)[0] for _ in range(3)] == [400] * 3
    assert caplog.text.count("/check answers 400") == 1


def test_nginx_takes_403_for_a_no():
    """With ?deny=403 each refusal is 403 and tells its status, but a 401 stays; other parameters are a mistake."""
    rules = [rule(match={"path": "/x"}), rule("key", match={"path": "/key"}, key={"header": "x-key"}, missing="deny")]
    app = InProcess({"rules": rules, "deny": {"path": "/denied"}})
    found = [app.check("/x", query="?deny=403") for _ in range(3)]
    assert [status for status, _, _ in found] == [204, 204, 403]
    assert (found[2][1]["x-headgate-status"], found[2][1]["retry-after"]) == ("429", "1800")
    status, headers, _ = app.check("/key", query="?deny=403")
    assert (status, headers["x-headgate-status"], headers["www-authenticate"]) == (401, "401", "APIKey")
    assert app.check("/denied", query="?deny=403")[0] == 403
    assert app.check("/x", query="?deny=200")[0] == 400


def test_a_refusal_has_the_form_that_the_client_accepts():
    """The proxy passes the client's Accept on."""
    app = InProcess({"rules": [rule()]})
    statuses(app, 2)
    assert app.check("/x", ("Accept", "text/plain"))[2] == b"The quota is used up. Retry after 1800 s.\n"
    assert json.loads(app.check("/x", ("Accept", "application/json"))[2]) == {
        "error": "quota-exceeded", "retry_after": 1800,
    }  # fmt: skip


def test_a_yes_is_never_a_response_in_place_of_the_app():
    """A rule that would answer 200 itself refuses here: a proxy would take 200 for a yes."""
    app = InProcess({"rules": [rule(act={"shadow": {"status": 200, "body": "decoy"}})]})
    assert statuses(app, 3) == [204, 204, 429]
    steps = InProcess({"rules": [rule(act={"shadow": {}}, exempt={"path": "/none"})]})
    assert statuses(steps, 3) == [204, 204, 429]


def test_a_rule_that_delays_holds_the_answer():
    """The question is answered after the delay; one more than the rule holds is refused."""
    app = InProcess({"rules": [rule(limits="20/second", act={"delay": {"hold": 2}})]})
    assert statuses(app, 2) == [204, 204]


def test_a_token_is_asked_for(tmp_path):
    """Every path but those of probes needs one of the tokens; `Authorization` stays the client's own."""
    (tmp_path / "tokens").write_text("0123456789abcdef\nfedcba9876543210\n")
    app = InProcess({"rules": [rule()]}, token_file=str(tmp_path / "tokens"))
    assert app.check("/x")[0] == 401
    assert app.check("/x", ("X-Headgate-Token", "0123456789abcdeX"))[0] == 401
    assert app.check("/x", ("X-Headgate-Token", "0123456789abcdef"), ("Authorization", "Bearer z"))[0] == 204
    assert app.check("/x", ("X-Headgate-Token", "fedcba9876543210"))[0] == 204
    assert app.check("/x", *[("X-Headgate-Token", "fedcba9876543210")] * 2)[0] == 401
    assert [app.ask("GET", path)[0] for path in ("/healthz", "/readyz", "/openapi.json", "/v1/check")] == [
        200, 200, 401, 401,
    ]  # fmt: skip


def test_other_paths_and_methods_are_told_apart():
    """404 for a path that is not there, 405 with the method that is."""
    app = InProcess({"rules": [rule()]})
    assert app.ask("GET", "/")[0] == 404
    assert [(app.ask("POST", path)[0], app.ask("POST", path)[1]["allow"]) for path in ("/check", "/healthz")] == [
        (405, "GET"), (405, "GET"),
    ]  # fmt: skip
    assert app.ask("GET", "/v1/check")[1]["allow"] == "POST"


def test_every_client_without_an_address_is_one():
    """A proxy that tells no address is counted itself, as everywhere else."""
    app = InProcess({"rules": [rule()]})
    told = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/")]
    assert [app.ask("GET", "/check", told, peer=None)[0] for _ in range(3)] == [204, 204, 429]
    assert app.check("/")[0] == 204
