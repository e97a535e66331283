"""Secrets that are not in the policy, and the pepper that hashes are keyed with."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

from headgate.errors import InvalidPolicy
from headgate.policy import Policy
from headgate.policy.secret import LARGEST
from tests.support.edges import Responder, view

pytestmark = pytest.mark.engineless

PEPPER = "a pepper of some length"


def hashed(text: str, key: bytes = b"") -> str:
    """As it stands in a store."""
    return "\\h" + blake2b(text.encode(), digest_size=16, key=key).hexdigest()


def key_of(key: Any, head: dict[str, Any], **known: Any) -> str | None:
    """What a request is counted by."""
    policy = Policy({"rules": [{"key": key, "limits": "1/minute", "match": {"path": "/{id}"}}], **head})
    ((rule, params),) = policy.matching(view(**{"path": "/7", **known}))
    return rule.key[0](view(**{"path": "/7", **known}), params)


SECRET: list[tuple[Any, dict[str, Any], str]] = [
    ({"header": "X-Key"}, {"headers": {"x-key": "sk-1"}}, "sk-1"),
    ({"cookie": "sid"}, {"headers": {"cookie": "sid=sk-1"}}, "sk-1"),
    ({"query": "key"}, {"query_string": "key=sk-1"}, "sk-1"),
    ("user", {"user": "x" * 129}, "x" * 129),
    ("path", {"path": "/" + "x" * 129}, "/" + "x" * 129),
    ({"param": "id"}, {"path": "/" + "x" * 129}, "x" * 129),
    ({"claim": "sub"}, {"claims": {"sub": "x" * 129}}, "x" * 129),
    ({"constant": "x" * 129}, {}, "x" * 129),
    (lambda seen: "x" * 129, {}, "x" * 129),
    ({"trusted_header": "a"}, {"headers": {"a": "x" * 129}, "peer": "10.0.0.1", "trusted": ["10.0.0.1"]}, "x" * 129),
]


@pytest.mark.parametrize(("key", "known", "text"), SECRET)
def test_a_pepper_keys_every_hash(monkeypatch, key, known, text):
    """Secrets and long values: without the pepper nobody can compute what the store has for a guess."""
    monkeypatch.setenv("PEPPER", PEPPER)
    assert key_of(key, {}, **known) == hashed(text)
    assert key_of(key, {"pepper": {"env": "PEPPER"}}, **known) == hashed(text, PEPPER.encode())


READABLE: list[tuple[Any, dict[str, Any], str]] = [
    ("user", {"user": "ann"}, "ann"),
    ({"claim": "sub"}, {"claims": {"sub": "ann"}}, "ann"),
    ({"param": "id"}, {}, "7"),
    ({"trusted_header": "a"}, {"headers": {"a": "ann"}, "peer": "10.0.0.1", "trusted": ["10.0.0.1"]}, "ann"),
    ("ip", {"peer": "10.0.0.1"}, "10.0.0.1"),
    ({"header": "x"}, {"headers": {"x": ""}}, "\\e"),
    ({"query": "x"}, {"query_string": "x="}, "\\e"),
]


@pytest.mark.parametrize(("key", "known", "told"), READABLE)
def test_what_is_readable_stays_readable(monkeypatch, key, known, told):
    """Names are no secrets, and an operator looks for them."""
    monkeypatch.setenv("PEPPER", PEPPER)
    assert key_of(key, {"pepper": {"env": "PEPPER"}}, **known) == told == key_of(key, {}, **known)


@pytest.mark.parametrize("length", [1, 64, 65, 1000])
def test_a_pepper_of_any_length(monkeypatch, length):
    """BLAKE2b takes keys of 64 bytes; a longer one is hashed to that, and no byte of it is ignored."""
    monkeypatch.setenv("PEPPER", "p" * length)
    sent: dict[str, Any] = {"headers": {"x": "sk-1"}}
    given = b"p" * length
    told = key_of({"header": "x"}, {"pepper": {"env": "PEPPER"}}, **sent)
    assert told == hashed("sk-1", given if length <= 64 else blake2b(given).digest())
    monkeypatch.setenv("PEPPER", "p" * (length - 1) + "q")
    assert key_of({"header": "x"}, {"pepper": {"env": "PEPPER"}}, **sent) != told


def test_two_policies_have_two_peppers(monkeypatch):
    """Each policy remembers hashes of its own."""
    told = []
    for pepper in ("one", "two", "one"):
        monkeypatch.setenv("PEPPER", pepper)
        told.append(key_of({"header": "x"}, {"pepper": {"env": "PEPPER"}}, headers={"x": "sk-1"}))
    assert told[0] == told[2] != told[1]


def test_requests_are_counted_under_the_keyed_hash(monkeypatch):
    """All the way to the store."""
    monkeypatch.setenv("PEPPER", PEPPER)
    rule = {"key": {"header": "x-key"}, "limits": "2/minute"}
    asked = Responder({"pepper": {"env": "PEPPER"}, "rules": [rule]})
    assert asked.kinds(3, headers={"x-key": "sk-1"}) == ["pass", "pass", "deny"]
    assert asked.left(key=hashed("sk-1", PEPPER.encode())) == 0
    assert asked.left(key=hashed("sk-1")) == 2


@pytest.mark.parametrize("written", [b"pepper", b"pepper\n", b"pepper\r\n", b"pepper\n\n"])
def test_a_secret_in_a_file_ends_before_the_end_of_its_line(tmp_path, written):
    """Editors and `echo` put it there; other space is the secret's own."""
    file = tmp_path / "pepper"
    file.write_bytes(b" " + written)
    told = key_of({"header": "x"}, {"pepper": {"file": str(file)}}, headers={"x": "sk-1"})
    assert told == hashed("sk-1", b" pepper")


def test_a_secret_may_have_bytes_that_are_no_text(monkeypatch, tmp_path):
    """In a file, and in the environment, where Python has them as surrogates."""
    file = tmp_path / "pepper"
    file.write_bytes(b"\xff\x00\xfe")
    told = key_of({"header": "x"}, {"pepper": {"file": str(file)}}, headers={"x": "sk-1"})
    assert told == hashed("sk-1", b"\xff\x00\xfe")
    monkeypatch.setenv("PEPPER", "\udcff")
    assert key_of({"header": "x"}, {"pepper": {"env": "PEPPER"}}, headers={"x": "a"}) == hashed("a", b"\xff")


def mistakes(pepper: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as raised:
        Policy({"pepper": pepper, "rules": [{"key": "ip", "limits": "1/minute"}]})
    return list(raised.value.mistakes)


def test_what_is_no_secret_is_a_mistake(monkeypatch, tmp_path):
    """An empty one, one that is too long, a folder, a name that no file can have."""
    monkeypatch.setenv("PEPPER", "")
    assert mistakes({"env": "PEPPER"}) == ["pepper.env: PEPPER is not set or is empty"]
    long, empty = tmp_path / "long", tmp_path / "empty"
    long.write_bytes(b"x" * (LARGEST + 1))
    empty.write_bytes(b"\n")
    assert mistakes({"file": str(long)}) == ["pepper.file: a secret may have at most 65536 bytes"]
    assert mistakes({"file": str(empty)}) == [f"pepper.file: {empty} is empty"]
    assert mistakes({"file": str(tmp_path)}) == [
        f"pepper.file: cannot be read: [Errno 21] Is a directory: '{tmp_path}'"
    ]
    assert mistakes({"file": "a\0b"}) == ["pepper.file: cannot be read: embedded null byte"]


@pytest.mark.parametrize("given", ["s3cret", b"s3cret", ["s3cret"], ("s3cret",), {"value": "s3cret"}, 1234567])
def test_a_secret_that_stands_in_the_policy_is_never_shown(given):
    """Mistakes are logged."""
    assert not [line for line in mistakes(given) if "s3cret" in line or "1234567" in line]
