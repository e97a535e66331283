"""Any bytes: no error but `InvalidCall`, and counts that add up."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidCall
from headgate.lab.logs import LogFacts
from tests.lab.logs.support import LINES, common, log_of

pytestmark = pytest.mark.engineless

KEPT = [line for path in sorted(LINES.iterdir()) for line in path.read_bytes().splitlines(keepends=True)]
SPECIAL = [
    b'"',
    b"\\",
    b"[",
    b"]",
    b" ",
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b"{",
    b"}",
    b",",
    b"\t",
    b"-",
    b"9" * 30,
    b"\x1f\x8b",
]
FIELDS = [
    None,
    {"time": "1"},
    {"time": "ts", "key": "request.uri", "cost": "size"},
    {"time": "1:ns", "key": "2", "path": "3"},
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Lines of servers, some of them cut, joined or overwritten."""
    lines = draw(st.lists(st.sampled_from(KEPT), max_size=8))
    text = bytearray(b"".join(lines) + draw(st.binary(max_size=40)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 9))] = draw(st.sampled_from(SPECIAL) | st.binary(max_size=3))
    return bytes(text)


def facts_of(text: bytes, **options: object) -> LogFacts | None:
    """Read a log; return its facts, or None if it was refused."""
    try:
        log = log_of(text, **options)
        times = [request.time for request in log]
    except InvalidCall:
        return None
    assert times == sorted(times)
    assert log.facts.requests == len(times)
    return log.facts


@given(damaged(), st.sampled_from(FIELDS), st.sampled_from(["ip", "user", "ts"]), st.booleans())
@settings(max_examples=600)
def test_damaged_lines(text, fields, key, packed):
    """Each line is a request, unreadable or late; times are sorted; only `InvalidCall` refuses a log."""
    facts = facts_of(gzip.compress(text) if packed else text, fields=fields, key=key)
    if facts is not None:
        assert facts.requests + facts.unreadable + facts.late == facts.lines
        assert facts.lines <= text.count(b"\n") + 1
        assert len(facts.bad_lines) == min(facts.unreadable, 3)
        assert all(bad.excerpt.isprintable() and bad.reason.isprintable() for bad in facts.bad_lines)


@given(st.lists(st.integers(-700, 700), min_size=1, max_size=60))
@settings(max_examples=200)
def test_any_order(steps):
    """Exactly the lines that come more than 300 s after a later one are late, and the rest is sorted."""
    seconds = [1000 + sum(steps[:i]) for i in range(1, len(steps) + 1)]
    log = log_of("".join(common(second) for second in seconds), stamps="as-is")
    times = [request.time for request in log]
    kept = [second for i, second in enumerate(seconds) if second >= max(seconds[: i + 1]) - 300]
    assert times == [(1_700_000_000 + second) * 1_000_000 for second in sorted(kept)]
    assert log.facts.late == len(seconds) - len(kept)
    assert log.facts.out_of_order == sum(1 for before, after in pairwise(seconds) if after < before)
