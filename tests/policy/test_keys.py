"""Keys: the parts of a request that a rule counts by, joined without collisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.key import join
from tests.policy.test_matching import key_of
from tests.support.edges import PEER

pytestmark = pytest.mark.engineless

H = "\\h"

KEYS: list[tuple[Any, dict[str, Any], str | None]] = [
    ("ip", {}, PEER),
    ("ip", {"peer": "::ffff:203.0.113.9"}, PEER),
    ("ip", {"peer": "2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"),
    ("ip", {"peer": "testclient"}, "testclient"),
    ("ip", {"peer": "::1", "trusted": ["::1"], "headers": {"x-forwarded-for": "6.6.6.6, 1.1.1.1"}}, "1.1.1.1"),
    ("ip", {"headers": {"x-forwarded-for": "6.6.6.6"}}, PEER),
    ("ip", {"peer": None}, None),
    ("user", {"user": "ann"}, "ann"),
    ("user", {"user": ""}, "\\e"),
    ("user", {}, None),
    ("user", {"user": "a\\e"}, "a\\\\e"),
    ("plan", {"plan": "pro"}, "pro"),
    ("host", {"headers": {"host": "A.org"}}, "a.org"),
    ("host", {"headers": {"host": "A.ORG.:8080"}}, "a.org"),
    ("host", {"headers": {"host": "[::1]:8080"}}, "[::1]"),
    ("host", {"headers": {"host": ""}}, "\\e"),
    ("host", {}, None),
    ("method", {}, "GET"),
    ("path", {}, "/"),
    ("route", {"route": "/users/{id}"}, "/users/{id}"),
    ("route", {}, None),
    ("everyone", {}, "*"),
    ({"constant": "all"}, {}, "all"),
    ({"query": "q"}, {"query_string": "q="}, "\\e"),
    ({"query": "q"}, {"query_string": "p=7"}, None),
    ({"header": "x-a"}, {"headers": {"x-a": ""}}, "\\e"),
    ({"header": "x-a"}, {}, None),
    ({"cookie": "a"}, {"headers": {"cookie": "a="}}, "\\e"),
    ({"cookie": "a"}, {"headers": {"cookie": "b=1"}}, None),
    ({"claim": "sub"}, {"claims": {"sub": "ann"}}, "ann"),
    ({"claim": "sub"}, {"claims": {"sub": 7}}, "7"),
    ({"claim": "sub"}, {"claims": {"sub": ["ann"]}}, None),
    ({"claim": "sub"}, {}, None),
    (lambda seen: seen.path, {}, "/"),
    (lambda seen: None, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "known", "told"), KEYS)
def test_keys(key, known, told):
    """Each part has its value, empty or not; a part that was not sent is None, which is not the same as empty."""
    assert key_of(key, missing="skip", **known) == told
    sent = isinstance(key, dict) and not key.keys() & {"trusted_header", "param", "constant"}
    assert key_of(key, missing="deny", **known) == (("401" if sent else "403") if told is None else told)
    peer = known.get("peer", PEER)
    assert key_of(key, missing="ip", **known) == (told if told is not None else f"\\m{peer or ''}")


def test_a_path_parameter_is_a_part_of_a_key():
    """One of several paths may not have it."""
    match = {"path": ["/users/{id}", "/orgs/{org}"]}
    assert key_of({"param": "id"}, "GET", "//users/7/", match=match) == "7"
    assert key_of({"param": "id"}, "GET", "/orgs/7", match=match, missing="skip") is None


@pytest.mark.parametrize("missing", ["skip", "deny", "ip"])
def test_a_missing_part_among_others(missing):
    """The rule is skipped, the request refused, or the address stands in for the one part."""
    told = {"skip": None, "deny": "403", "ip": f"/|\\m{PEER}"}[missing]
    assert key_of(["path", "user"], missing=missing) == told
    assert key_of(["path", "user"], missing=missing, user="") == "/|\\e"


def test_nobody_can_pretend_to_be_a_missing_or_empty_or_hashed_part():
    """Text of users is escaped, so that only Headgate writes the marks."""
    marks = [f"\\m{PEER}", "\\e", f"{H}{'0' * 32}", "\\p"]
    assert {key_of("user", user=mark) for mark in marks} == {f"\\{mark}" for mark in marks}


SENT: dict[str, Callable[[str], dict[str, Any]]] = {
    "header": lambda text: {"headers": {"x-key": text}},
    "cookie": lambda text: {"headers": {"cookie": f"x-key={text}"}},
    "query": lambda text: {"query_string": f"x-key={text}"},
}


@pytest.mark.parametrize("source", SENT)
def test_secrets_are_hashed_before_anything_else_sees_them(source):
    """An API key is 128 bits of a hash, the same for the same secret and another for another."""
    told = [key_of({source: "x-key"}, **SENT[source](text)) for text in ("sk-1", "sk-1", "sk-2")]
    assert told[0] == told[1] != told[2]
    assert all(len(key) == 34 and key.startswith(H) and "sk" not in key for key in told)


LONG: list[tuple[Any, dict[str, Any]]] = [
    ("user", {"user": "é" * 100_000}),
    ("path", {"path": "/" + "x" * 100_000}),
    ("host", {"headers": {"host": "x" * 100_000}}),
    ("method", {"method": "X" * 100_000}),
    ("ip", {"peer": "x" * 100_000}),
    ({"query": "q"}, {"query_string": "q=" + "x" * 10_000}),
    ({"claim": "sub"}, {"claims": {"sub": "x" * 100_000}}),
    ({"trusted_header": "a"}, {"headers": {"a": "x" * 9999}, "peer": "10.0.0.1", "trusted": ["10.0.0.0/8"]}),
    ({"header": "a"}, {"headers": {"a": "x" * 100_000}}),
]


@pytest.mark.parametrize(("key", "known"), LONG)
def test_long_parts_are_hashed(key, known):
    """A long part is never an error, and never a long key."""
    told = key_of(key, **known)
    assert told.startswith(H) and len(told) == 34


def test_long_parts_that_are_no_text_are_told_apart():
    """A framework may pass on bytes that are no UTF-8 as surrogates: two of them are two users."""
    assert key_of("user", user="\udcfe" * 129) != key_of("user", user="\udcff" * 129)


def test_many_long_parts_make_a_key_that_every_store_takes():
    """A key has at most 4096 bytes; twelve parts of 128 letters of four bytes each have more."""
    parts = [{"claim": f"c{at}"} for at in range(12)]
    told = key_of(parts, claims={f"c{at}": "😀" * 128 for at in range(12)})
    assert told.startswith(H) and len(told) == 34


PARTS = st.lists(st.text("ab|\\pmeh", max_size=4) | st.none(), min_size=2, max_size=3)


@given(PARTS, PARTS)
def test_two_requests_share_a_key_only_if_all_their_parts_are_the_same(ones, others):
    """However bars and backslashes are put, nobody can move a part's end, or make one look missing or empty."""

    def told(parts: list[str | None]) -> str:
        claims = {str(at): part for at, part in enumerate(parts) if part is not None}
        return str(key_of([{"claim": str(at)} for at in range(len(parts))], claims=claims))

    assert (told(ones) == told(others)) is (ones == others)


def test_joining_escapes_bars():
    """Written out once."""
    assert join(["a|b", "c"]) == "a\\pb|c" != join(["a", "b|c"])
