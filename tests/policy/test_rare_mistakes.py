"""Mistakes that few make in a policy, and stores that cannot serve one: each is told."""

from __future__ import annotations

import asyncio
import re

import pytest

from headgate import InvalidPolicy, MemoryStore, Policy, SqliteStore
from headgate.policy.edges import compare
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi

pytestmark = pytest.mark.engineless

RULE = {"name": "api", "key": "ip", "limits": "10/minute"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"match": {"host": "example.com:8080"}}, "a host is compared without its port: write example.com"),
        ({"match": {"query": {"page": {}}}}, "expected below or above"),
        ({"match": {"query": {"page": {"above": 3, "below": 2}}}}, "no number is above 3 and below 2"),
        ({"act": {"deny": {"message": 5}}}, "expected text, or text by the names of limits; got 5"),
    ],
    ids=["a host with a port", "no bound", "no number between", "a message that is no text"],
)
def test_a_field_with_a_wrong_value_is_named(fields, told):
    """The message says what is expected there, and what was found."""
    with pytest.raises(InvalidPolicy, match=re.escape(told)):
        Policy({"rules": [{**RULE, **fields}]})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a b", "expected the name of a field, as in X-Calls-Left; got 'a b'"),
        ("X-Left\r\nSet-Cookie: a=b", "expected the name of a field"),
        ("X-Left\n", "expected the name of a field"),
        ("Content-Length", "responses have a field Content-Length already"),
        ("retry-after", "responses have a field retry-after already"),
    ],
)
def test_a_name_that_cannot_be_sent_is_no_header_field(name, told):
    """The header fields of an app need names that are theirs, and that add no other line to a response."""
    with pytest.raises(InvalidPolicy, match=told):
        Policy({"rules": [RULE], "headers": {"remaining": name}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules:\n  - &a {name: a, key: ip, limits: 1/s}\n  - &a {name: b, key: ip, limits: 1/s}", "second occurrence"),
        ("rules:\n  - *nobody", "found undefined alias 'nobody'"),
        ("rules:\n  - {name: a, key: ip, limits: 1/s, [x]: 1}", "word"),
    ],
    ids=["an anchor twice", "an alias of nothing", "a name that is a list"],
)
def test_anchors_and_names_of_yaml_that_mean_nothing_are_told(tmp_path, text, told):
    """Each is an error with its line: none is guessed."""
    (tmp_path / "policy.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidPolicy, match=told):
        Policy.load(tmp_path / "policy.yaml")


def test_an_alias_may_be_the_name_of_a_field(tmp_path):
    """YAML lets any value be repeated, and so a name."""
    text = "rules:\n  - {&n name: a, key: ip, limits: 1/s}\n  - {*n : b, key: ip, limits: 1/s}\n"
    (tmp_path / "policy.yaml").write_text(text, encoding="utf-8")
    assert [rule.name for rule in Policy.load(tmp_path / "policy.yaml").rules] == ["a", "b"]


def test_a_store_without_room_for_one_key_is_told_with_the_rule():
    """A policy is tried on its store when the app starts, not at the first request."""
    with pytest.raises(InvalidPolicy, match="rule api: "):
        RateLimitMiddleware(
            plain_wsgi,
            {"rules": [{**RULE, "limits": "100000/minute by sliding-log"}]},
            store=MemoryStore(max_bytes=2**16),
        )


def test_other_prefixes_of_addresses_are_a_reason_to_count_anew():
    """A key by its address is another one under other prefixes: the change of a policy says so."""
    old = Policy({"rules": [RULE]})
    new = Policy({"rules": [{**RULE, "limits": "10/minute by fixed-window"}], "address_prefixes": {"ipv6": 56}})
    assert "its addresses are counted by other prefixes" in str(compare(old, new, (), 0))


def test_stores_that_a_policy_has_opened_are_closed_with_it(tmp_path, monkeypatch):
    """The end of the block closes them, also in an event loop."""
    policy = Policy({"rules": [{**RULE, "store": "own"}], "stores": {"own": f"sqlite://{tmp_path / 'limits.db'}"}})
    closed: list[type] = []
    given, close = MemoryStore(), SqliteStore.close

    def noted(store: SqliteStore) -> None:
        closed.append(type(store))
        close(store)

    monkeypatch.setattr(SqliteStore, "close", noted)

    async def opened() -> int:
        async with policy.bind(given) as bound:
            return (await bound.apeek("api", "203.0.113.9")).remaining

    with policy.bind(given) as bound:
        assert bound.peek("api", "203.0.113.9").remaining == 10
    assert closed == [SqliteStore]
    assert asyncio.run(opened()) == 10
    assert closed == [SqliteStore] * 2
