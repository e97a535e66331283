"""Every way to write a request that says `key`: once and twice, reordered, hidden, re-encoded, too long.

What has to hold of them is here too, for the suite and for long storms: an app is never asked more often about what it
sees as one value than the limit of that value says, and no list is passed by saying more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from urllib.parse import quote, unquote

from tests.support.frameworks import Seen, Sent, asking

VALUES = ("k1", "k2", "a b", "é", "Ã©", "ÿ", "A;B", "%41", 'q"q')
"""Few, so that one value comes in many forms."""
SPACES = ("", "", "", " ", "\t", "\xa0", "\x85", "  ")


def _bytes(chance: Random, text: str) -> bytes:
    """As UTF-8 mostly, as clients of old do sometimes."""
    try:
        return text.encode(chance.choice(("utf-8", "utf-8", "latin-1")))
    except UnicodeEncodeError:
        return text.encode()


def _noise(chance: Random) -> str:
    return f"x{chance.randrange(10**9)}"


def _values(chance: Random) -> list[str]:
    """What is said: a value, often with others around it."""
    value = chance.choice(VALUES)
    others = [
        chance.choice((value, value, _noise(chance), "", chance.choice(VALUES))) for _ in range(chance.randrange(3))
    ]
    said = [value, *others] if chance.random() < 0.6 else [value]
    chance.shuffle(said)
    return said


def header(chance: Random) -> Sent:
    """Lines of `x-key`, among others."""
    lines = [
        (_name(chance, "X-Key"), _bytes(chance, chance.choice(SPACES) + value + chance.choice(SPACES)))
        for value in _values(chance)
    ]
    if chance.random() < 0.2:
        lines.insert(chance.randrange(len(lines) + 1), (b"X_Key", _noise(chance).encode()))
    return Sent(tuple(lines))


def _name(chance: Random, name: str) -> bytes:
    return chance.choice((name, name.lower(), name.upper())).encode()


def token(chance: Random) -> Sent:
    """Lines of `authorization`."""
    lines = []
    for value in _values(chance):
        scheme = "".join(chance.choice((letter.lower(), letter.upper())) for letter in "bearer")
        gap, end = " " * chance.randrange(1, 4), chance.choice(SPACES)
        lines.append((_name(chance, "Authorization"), _bytes(chance, f"{scheme}{gap}{value}{end}")))
    return Sent(tuple(lines))


def _percent(chance: Random, text: str, safe: str) -> bytes:
    """Some of it percent-encoded, although it need not be."""
    made = b""
    for byte in _bytes(chance, text):
        plain = chr(byte) in safe or (chr(byte).isalnum() and byte < 128)
        raw = byte > 127 and chance.random() < 0.2
        if raw or (plain and chance.random() < 0.7):
            made += bytes([byte])
        elif byte == 32 and chance.random() < 0.5:
            made += b"+"
        else:
            made += chance.choice((b"%%%02X", b"%%%02x")) % byte
    return made


def query(chance: Random) -> Sent:
    """Parameters, `key` among them."""
    pairs = [_percent(chance, "key", "") + b"=" + _percent(chance, value, '-._~;"') for value in _values(chance)]
    for _ in range(chance.randrange(3)):
        odd = (
            b"",
            b"=",
            b"key",
            b"keys=1",
            b"=key",
            b"a=1;key=z",
            b"key;=1",
            b"a",
            b"Key=9",
            b"k%FFy=1",
            b"key=%FF",
            b"key=%F",
        )
        pairs.insert(chance.randrange(len(pairs) + 1), chance.choice(odd))
    if chance.random() < 0.1:
        filler = [b"f=1"] * chance.choice((255, 256, 300, 900))
        at = chance.randrange(len(pairs) + 1)
        pairs[at:at] = filler
    if chance.random() < 0.05:
        pairs.insert(chance.randrange(len(pairs) + 1), b"long=" + b"z" * 7000)
    return Sent((), b"&".join(pairs))


def _cookie_value(chance: Random, text: str) -> str:
    forms: Sequence[Callable[[str], str]] = (
        lambda text: text,
        lambda text: f'"{text}"',
        lambda text: quote(text, safe=""),
        lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
        lambda text: '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"',
        lambda text: '"' + "".join(f"\\{letter}" for letter in text) + '"',
    )
    return chance.choice(forms)(text)


def cookie(chance: Random) -> Sent:
    """Cookies, `key` among them, in one line or several."""
    pairs = []
    for value in _values(chance):
        if chance.random() < 0.2:
            value += f" {_noise(chance)}"
        before, after = chance.choice(SPACES), chance.choice(SPACES)
        pairs.append(f"{before}key{chance.choice(SPACES)}={chance.choice(SPACES)}{_cookie_value(chance, value)}{after}")
    for _ in range(chance.randrange(3)):
        hidden = chance.choice(VALUES[:2])
        odd = (
            "", "key", "=", "a=1", "Key=9", "xkey=1", f"a=1 key={hidden}", f"a=1,key={hidden}", f'a="key={hidden}"',
            f'a="b; key={hidden}; c="', 'a="', 'b"',
        )  # fmt: skip
        pairs.insert(chance.randrange(len(pairs) + 1), chance.choice(odd))
    if chance.random() < 0.1:
        at = chance.randrange(len(pairs) + 1)
        pairs[at:at] = ["f=1"] * chance.choice((255, 256, 300))
    cut = chance.randrange(len(pairs) + 1) if chance.random() < 0.3 else len(pairs)
    lines = [chance.choice(("; ", ";", " ; ")).join(each) for each in (pairs[:cut], pairs[cut:]) if each]
    return Sent(tuple((b"Cookie", _bytes(chance, line)) for line in lines))


FORMS: dict[str, Callable[[Random], Sent]] = {"header": header, "token": token, "query": query, "cookie": cookie}
KEYS = {
    "header": {"header": "x-key"},
    "token": {"header": "authorization"},
    "query": {"query": "key"},
    "cookie": {"cookie": "key"},
}
REFUSED = frozenset((400, 401, 403, 414, 429, 431, 500))
"""414 and 431 are a server's own; 500 is a framework's, where it cannot read what was sent."""


def storm(reader: str, source: str, policy: Any, seed: int, count: int) -> list[tuple[Sent, Seen]]:
    """Requests of one source in any form, and what came of each."""
    chance = Random(seed)
    requests = [FORMS[source](chance) for _ in range(count)]
    answers = asking(reader, policy, requests)
    assert {answer.status for answer in answers} <= REFUSED | {200}
    return list(zip(requests, answers, strict=True))


def served_twice(reader: str, source: str, seed: int, count: int) -> list[tuple[str, Sent, Sent]]:
    """Values that an app was asked about more than once, although the limit of each value is one."""
    policy = {"rules": [{"key": KEYS[source], "missing": "deny", "limits": "1/hour"}]}
    first: dict[str, Sent] = {}
    twice = []
    for sent, answer in storm(reader, source, policy, seed, count):
        value = answer.values.get(source) if answer.status == 200 else None
        if value is not None and value in first:
            twice.append((value, first[value], sent))
        elif value is not None:
            first[value] = sent
    return twice


def _condition(source: str) -> dict[str, Any]:
    """A condition that holds for `k1`."""
    ((kind, name),) = KEYS[source].items()
    return {kind: {name: "Bearer k1" if source == "token" else "k1"}}


def passed_the_lists(reader: str, source: str, seed: int, count: int) -> list[tuple[str, Sent, Any]]:
    """Requests that came through although a list denies what the app saw, or that none allows."""
    condition, nobody = _condition(source), [{"key": "everyone", "limits": "1/hour", "cost": 2}]
    lists: dict[str, tuple[dict[str, Any], bool]] = {
        "deny": ({"deny": condition}, False),
        "deny not": ({"deny": {"not": condition}}, True),
        "allow": ({"allow": condition, "rules": nobody}, True),
        "allow not": ({"allow": {"not": condition}, "rules": nobody}, False),
    }
    wrong = []
    for name, (given, wanted) in lists.items():
        policy = {"rules": [{"key": "everyone", "limits": "1000000/hour"}], **given}
        for sent, answer in storm(reader, source, policy, seed, count):
            value = answer.values.get(source)
            if answer.status == 200 and (not _may_be_wanted(value) if wanted else (value or "").strip() == "k1"):
                wrong.append((name, sent, answer.values[source]))
    return wrong


def _may_be_wanted(value: str | None) -> bool:
    """Whether an app saw `k1` once or as often as it was sent, in any spelling, or nothing; but not another value."""
    text = re.sub("[^ -~]", " ", unquote(value or "").replace("\ufffd", " "))
    return {re.sub("^bearer ", "", each.strip(), flags=re.IGNORECASE).strip() for each in text.split(",")} <= {"k1", ""}
