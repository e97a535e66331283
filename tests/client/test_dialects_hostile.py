"""Dialects against hostile servers: never an exception, never a number that is not one, never more than linear time."""

from __future__ import annotations

import gc
import math
import sys
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client.dialects import read
from headgate.client.dialects.numbers import LONGEST, MOST
from headgate.client.dialects.structured import items_of
from headgate.client.server_limits import ServerResponse

pytestmark = pytest.mark.engineless

NOW = 1_794_859_200_000_000
NAMES = [
    "Date", "Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "RateLimit", "RateLimit-Policy", "RateLimit-Limit",
    "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
    "X-RateLimit-Resource", "X-RateLimit-Bucket", "X-RateLimit-Global", "X-RateLimit-Reset-After", "X-Rate-Limit-Reset",
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "x-should-retry",
    "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-requests-reset",
    "X-Shopify-Shop-Api-Call-Limit", "grpc-retry-pushback-ms", "grpc-status-details-bin",
]  # fmt: skip
HOSTILE = [
    "", " ", "-1", "-0", "+1", "nan", "NaN", "inf", "-inf", "1e999", "1e3", "0x10", "1_0", "1.", ".5", "1.5.5",
    "9" * 15, "9" * 16, "9" * 400, "0." + "9" * 400, "1" + "0" * 12, "1794859200", "1794859200000", "1794859200000000",
    "\0", "é", "٣", "\ud800", "1\r\nX: 1", "0", "1", "5, 10", ",", ",,,", ";", ";w=1", '"', '"a', '"a"', '"a";',
    '"a";r', '"a";r=', '"a";r=1;t=-1', '"a";r=1.5;t=nan', '"\\', "limit=", "limit=1,",
    "limit=9999999999999999, remaining=x", "100;w=0", "100, 100;w=0", "true", "6m0s", "1h" * 5000, "99999999999999h",
    "-5s", "m", "5",
    "0000-00-00T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "2026-11-16T20:00:00+99:99", "T",
    "Mon, 16 Nov 2026 20:00:00 GMT",
    "Mon, 99 Nov 2026 99:99:99 GMT", "Mon, 16 Nov 0000 20:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "32/40", "1/0",
    "/",
]  # fmt: skip
values = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
    st.text('";=, rtaqw0123456789.:?-', max_size=60),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
)
bodies = st.one_of(st.just(b""), st.just(b"secondary rate"), st.binary(max_size=50))


def check(answer: ServerResponse) -> None:
    """Every number is within its bounds, and every text short."""
    assert type(answer.refused) is bool
    for seconds in (answer.retry_after, *(time for each in answer.told for time in (each.reset, each.retry_after))):
        assert seconds is None or (type(seconds) is float and math.isfinite(seconds) and 0 <= seconds <= LONGEST)
    for each in answer.told:
        assert each.window is None or 0 < each.window <= LONGEST
        assert each.limit is None or (type(each.limit) is int and 1 <= each.limit <= MOST)
        assert each.remaining is None or (type(each.remaining) is int and 0 <= each.remaining <= MOST)
        assert each.name is None or (0 < len(each.name) <= 128 and each.name.isascii() and each.name.isprintable())
    assert len(answer.told) <= 64


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8),
    st.sampled_from([200, 403, 429, 503, 0, -1, 999]),
    bodies,
)
def test_any_text_in_any_field_is_read_or_ignored(headers, status, body):
    """Whatever a server sends, reading it raises nothing, and each number told is finite and within its bounds."""
    check(read(status, headers, NOW, body))


@pytest.mark.parametrize("name", NAMES)
def test_each_field_broken_in_every_way(name):
    """Each hostile value in each field, beside fields that are well formed."""
    beside = [("X-RateLimit-Resource", "core"), ("RateLimit-Policy", '"a";q=5;w=1'), ("X-RateLimit-Remaining", "0")]
    for value in HOSTILE:
        check(read(429, [(name, value)], NOW))
        check(read(429, [(name, value), *beside], NOW, b"secondary rate"))
        check(read(429, [*beside, (name, value)], NOW))


@given(st.binary(max_size=200))
def test_any_bytes_may_be_the_details_of_a_status(details):
    """Bytes that are no protobuf, or another message, tell no wait or one within its bounds."""
    check(read(429, [(b"grpc-status-details-bin", details), (b"retry-after", details)], NOW))


def calls_and_lines(value: str, name: str) -> int:
    """How many lines and calls of Python it takes to read a field."""
    count = 0

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    gc.disable()  # its callbacks would be counted
    sys.settrace(trace)
    try:
        read(429, [(name, value)], NOW)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.parametrize(
    "unit",
    [
        "9",
        '"',
        '"a";',
        '"a",',
        '"\\',
        '\\"',
        ";w=1",
        "1;w=1,",
        ", ",
        " ",
        "1h",
        "0.",
        "limit=1,",
        "\x1a\x00",
        "\x08\xff",
    ],
)
def test_a_megabyte_is_not_read(unit):
    """A field of a megabyte tells no wait and no limit, and takes no more steps than one of 20 KB."""
    megabyte, less = (unit * (length // len(unit)) for length in (1_000_000, 20_000))
    for name in NAMES:
        assert read(429, [(name, megabyte)], NOW) == ServerResponse(429, True), name
        assert calls_and_lines(megabyte, name) == calls_and_lines(less, name), name


@pytest.mark.parametrize(
    "unit", ['"a";r=1,', '"a";', "1;w=1,", ";w=1", '"\\"', "a", '"a', "limit=1,", "\x1a\x00", "\x08\x01"]
)
def test_reading_takes_linear_time(unit):
    """Four times the characters take at most about four times the steps of Python."""
    for name in ("RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "grpc-status-details-bin"):
        quarter, whole = (calls_and_lines(unit * (size // len(unit)), name) for size in (4_000, 16_000))
        assert whole <= 4.2 * quarter


def test_a_list_repeated_in_many_lines_stays_bounded():
    """Lines of one list are joined up to the length of the longest field; the rest is left out."""
    lines = [("RateLimit-Policy", f'"p{number}";q=5;w=1') for number in range(100_000)]
    check(read(200, lines, NOW))


names = st.from_regex(r"[A-Za-z*][A-Za-z0-9_:/.-]{0,9}", fullmatch=True)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10)
numbers = st.integers(-(10**15) + 1, 10**15 - 1)


def parsed(text: str) -> list[Any]:
    """A list as the parser of others reads it."""
    items: Any = http_sf.parse(text.encode(), tltype="list")
    return list(items)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


parameters = st.dictionaries(
    st.from_regex(r"[a-z*][a-z0-9_.*-]{0,3}", fullmatch=True), texts.map(quoted) | numbers.map(str), max_size=3
)
items = st.builds(
    lambda value, given: value + "".join(f";{key}={each}" for key, each in given.items()),
    texts.map(quoted) | names | numbers.map(str),
    parameters,
)


@given(st.lists(items, min_size=1, max_size=5))
def test_lists_are_read_as_the_parser_of_others_reads_them(given):
    """Items and parameters are those that `http-sf` finds, written as text."""
    text = ", ".join(given)
    expected = [
        (str(value), type(value) is int, {key: str(each) for key, each in found.items()})
        for value, found in parsed(text)
    ]
    assert [tuple(item) for item in items_of(text)] == expected


@given(st.text('"\\;=,a1 .w-', max_size=20))
def test_a_list_that_others_refuse_is_not_read(text):
    """A list that the parser of others cannot read has no items; one that it reads has no more than it finds."""
    try:
        expected = parsed(text)
    except ValueError:
        expected = []
    assert len(items_of(text)) in (0, len(expected))
