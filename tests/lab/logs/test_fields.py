"""Fields: CSV, TSV and JSON lines of any kind, with names or numbers for time, key, cost, method, path and status."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from headgate.errors import InvalidCall
from tests.lab.logs.support import LINES, START, drained, log_of, read

pytestmark = pytest.mark.engineless
T = START * 1_000_000


def test_columns_with_a_header():
    """Fields are named by the first line, which is no line of the log; the rest of the columns is left unread."""
    text = 'when,who,tokens,uri,verb,code\n1700000000.5,"a,b",7,/x?y,GET,200\n1700000001.25,,0,http://h/z,PUT,\n'
    fields = {"time": "when", "key": "who", "cost": "tokens", "path": "uri", "method": "verb", "status": "code"}
    log = log_of(text, fields=fields)
    assert [tuple(request) for request in log] == [
        (T + 500_000, "a,b", 7, "GET", "/x?y", 200),
        (T + 1_250_000, "-", 0, "PUT", "/z", 0),
    ]
    assert (log.facts.format, log.facts.lines, log.facts.missing) == ("CSV", 2, ("user",))
    assert read(text.replace(",", "\t"), fields=fields, wanted=())[1] == (T + 1_250_000, "-", 0, "", "", 0)


@pytest.mark.parametrize("header", ["", "client\ttime\n"])
def test_columns_by_number(header):
    """Columns are counted from 1; a first line without a time is a header then too."""
    rows = read(f"{header}a\t{START}\nb\t{START + 1}\n", fields={"time": "2", "key": "1"})
    assert rows == [(T, "a", 1, "", "", 0), (T + 1_000_000, "b", 1, "", "", 0)]


def test_json_lines():
    """Fields are named with dots, within each other or as they are; numbers may be keys, and texts costs."""
    lines = [
        {"at": {"ts": START * 1000}, "http.client": 42, "n": "3", "l": [{"p": "/a"}]},
        {"at": {"ts": START * 1000 + 1}, "http.client": "x", "n": 4.0, "l": []},
    ]
    fields = {"time": "at.ts", "key": "http.client", "cost": "n", "path": "l.0.p"}
    log = log_of("\n".join(map(json.dumps, lines)), fields=fields)
    assert [tuple(request) for request in log] == [(T, "42", 3, "", "/a", 0), (T + 1_000, "x", 4, "", "", 0)]
    assert (log.facts.format, log.facts.inputs[0].stamps) == ("JSON lines", "ms")


def test_a_log_without_a_key_is_one_client():
    """Traces of language models name no client: all requests have the key `-`, and the facts say so."""
    log = log_of("1\n2\n", fields={"time": "1"})
    assert [request.key for request in log] == ["-", "-"]
    assert "key" in log.facts.missing


def test_key_and_cost_may_be_given_as_elsewhere():
    """`key` and `cost` name fields as they do for a format that is recognised, and win over `fields`."""
    text = "ts,a,b\n1,x,5\n"
    assert read(text, fields={"time": "ts", "key": "b"}, key="a", cost="b") == [(1_000_000, "x", 5, "", "", 0)]


@pytest.mark.parametrize(
    ("stamp", "unit", "us"),
    [
        ("0", "s", 0),
        ("12.5", "s", 12_500_000),
        ("1700000000", "s", T),
        ("1700000000.1234569", "s", T + 123_456),
        ("100000000000", "ms", 10**14),
        ("100000000000000", "us", 10**14),
        ("100000000000000000", "ns", 10**14),
        ("1700000000123", "ms", T + 123_000),
        ("1700000000123.5", "ms", T + 123_500),
        ("1700000000123456", "us", T + 123_456),
        ("1700000000123456789", "ns", T + 123_456),
        ("2023-11-14T22:13:20Z", "date", T),
        ("2023-11-14 22:13:20.1234569", "date", T + 123_456),
        ("2023-11-14T23:13:20,5+01:00", "date", T + 500_000),
        ("14/Nov/2023:17:13:20 -0500", "date", T),
        ("[14/Nov/2023:22:13:20.250 +0000]", "date", T + 250_000),
    ],
)
def test_stamps_tell_their_unit(stamp, unit, us):
    """Numbers are of seconds, or of smaller units by their size; dates are of ISO 8601 or of servers."""
    log = log_of(f"{stamp}\t\n", fields={"time": "1"})
    assert [request.time for request in log] == [us]
    assert log.facts.inputs[0].stamps == unit
    if unit != "date":
        assert [row[0] for row in read(f'{{"t": {stamp}}}', fields={"time": "t"})] == [us]


def test_a_unit_may_be_given():
    """Small numbers are seconds since the start, unless the field says otherwise; such stamps are not spread."""
    log = log_of('{"t": 0}\n{"t": 3000}\n{"t": 3000}\n', fields={"time": "t:ms"})
    assert [request.time for request in log] == [0, 3_000_000, 3_000_000]
    assert not log.facts.spread
    assert [row[0] for row in read("a:b\n5\n", fields={"time": "a:b"})] == [5_000_000]


def refusal_of(year: int, month: int, day: int) -> str:
    """Python's words for a date that does not exist, which differ between versions."""
    with pytest.raises(ValueError) as refused:
        date(year, month, day)
    return str(refused.value)


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("x", "'x' is no date"),
        ("-5", "'-5' is no date"),
        ("2023-02-30T00:00:00Z", f"its date is none: {refusal_of(2023, 2, 30)}"),
        ("2023-11-14T24:00:00Z", "'2023-11-14T24:00:00Z' has no time of day"),
        ("1969-12-31T23:59:59Z", "its time is before 1970 or after 2255"),
        ("14/Foo/2023:22:13:20 +0000", f"its date is none: {refusal_of(2023, 0, 14)}"),
        ("99999999999", "its time is before 1970 or after 2255"),
    ],
)
def test_stamps_that_are_none(stamp, reason):
    """A stamp that cannot be is the reason why its line is not read."""
    log = drained(log_of(f"{START},a\n{START},b\n{stamp},c\n", fields={"time": "1"}))
    assert [bad.reason for bad in log.facts.bad_lines] == [reason]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"t": 1, "n": -1}', "-1 is no cost"),
        ('{"t": 1, "n": 1.5}', "1.5 is no cost"),
        ('{"t": 1, "n": 1e999}', "inf is no cost"),
        ('{"t": 1, "n": 9007199254740993}', "9007199254740993 is no cost"),
        ('{"t": 1, "n": true}', "True is no cost"),
        ('{"t": 1}', "it has no cost"),
        ('{"n": 1}', "it has no time"),
        ('{"t": NaN, "n": 1}', "nan is no time"),
        ('{"t": [], "n": 1}', "[] is no time"),
        ('{"t": 1, "n": 1, "k": {}}', "{} is no key"),
        ('{"t": 1, "n": 1, "k": "' + "x" * 1025 + '"}', "its key has more than 1,024 characters"),
        ("[1]", "it is no JSON object"),
        ("{", "it is no JSON"),
        ('{"t": 1' + "0" * 5000 + "}", "it is no JSON"),
    ],
)
def test_values_that_are_none(line, reason):
    """A cost is a whole number from 0 to 2**53, a key a short text or a number, a line one object."""
    good = '{"t": 1, "n": 1, "k": "a"}\n'
    log = drained(log_of(f"{good}{good}{line}\n", fields={"time": "t", "cost": "n", "key": "k"}))
    assert [bad.reason for bad in log.facts.bad_lines] == [reason]


def test_json_that_is_nested_too_deeply_is_bad():
    """It is told as such where it is too deep for the stack of this Python."""
    good = '{"t": 1, "k": "a"}\n'
    log = drained(log_of(f"{good}{good}{'[' * 60_000}\n", fields={"time": "t", "key": "k"}))
    assert [bad.reason in ("its JSON is nested too deeply", "it is no JSON") for bad in log.facts.bad_lines] == [True]


def test_a_short_line_of_columns_is_bad():
    """A line without the column of a field tells how many it has."""
    log = drained(log_of("a,b\n1,x\n2,y\n3\n", fields={"time": "a", "key": "b"}))
    assert [(bad.number, bad.reason) for bad in log.facts.bad_lines] == [(4, "it has 1 of 2 columns")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": {"key": "a"}}, "fields must name the time: fields={'time': 'ts'}, or --fields time=ts"),
        ({"fields": {"time": "a", "kee": "b"}}, "a log has no field for 'kee'; did you mean 'key'?"),
        ({"fields": {"time": ""}}, "the field for the time must be a name or the number of a column; got ''"),
        ({"fields": {"time": "whenn"}}, "the first line has no column 'whenn': did you mean 'when'?"),
        ({"fields": {"time": "when", "key": "3"}}, "the first line has no column '3': use one of when, who"),
        ({"fields": {"time": "3"}}, "nearest format, CSV"),
        ({"key": ""}, "key must be 'ip', 'user' or the name of a field; got ''"),
        ({"cost": 5}, "cost must be the name of a field; got 5"),
        ({"wanted": ["agent"]}, "'agent' cannot be wanted; use one of method, path, status"),
    ],
)
def test_choices_that_are_mistakes(options, problem):
    """A mistake in the choice of fields is told with what to write instead."""
    with pytest.raises(InvalidCall) as told:
        drained(log_of("when,who\n1,a\n", **options))
    assert problem in str(told.value)


def test_fields_win_over_recognition():
    """The caller's names are used also for a format that would be recognised."""
    options: dict[str, Any] = {"fields": {"time": "StartUTC", "key": "RouterName", "cost": "DownstreamContentSize"}}
    rows = read((LINES / "traefik.jsonl").read_bytes(), **options)
    assert {row[1:3] for row in rows} == {("all@file", 11)}
