"""Public traces of real traffic, where this machine has them: every count equals the one that their makers noted."""

from __future__ import annotations

import gzip
import io
import re
from calendar import timegm
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from headgate.lab.logs import Log
from tests.lab.logs.support import Lines
from tests.support import ROOT

pytestmark = pytest.mark.engineless

TRACES = ROOT.parent / "shared" / "data" / "traces"
NOTED = re.compile(
    r"- lines (\d+), requests (\d+); (\S+ \S+) \.\. (\S+ \S+) .*?; clients (\d+|not recorded); .* ooo (\d+) maxback"
)
TRACED: list[tuple[str, dict[str, Any]]] = [
    ("apache-wordpress-2016.log.gz", {}),
    ("nginx-erddap-api-2024.log.gz", {}),
    ("elastic-nginx_logs.log.gz", {}),
    ("epa-http-1995.log.gz", {}),
    (
        "nasa-http-1995-08-01.tsv.gz",
        {"fields": {"time": "time", "key": "host", "method": "method", "path": "url", "status": "response"}},
    ),
    ("nasa-http-1995-per-second.txt.gz", {"fields": {"time": "1"}}),
    ("AzureLLMInferenceTrace_code.csv.gz", {"fields": {"time": "TIMESTAMP", "cost": "ContextTokens"}}),
    ("mooncake_conversation_trace.jsonl.gz", {"fields": {"time": "timestamp:ms", "cost": "input_length"}}),
    ("vtc-lmsys-27clients.csv.gz", {"fields": {"time": "req_time", "key": "client", "cost": "prompt_len"}}),
]
HEADERS = {"nasa-http-1995-08-01.tsv.gz", "AzureLLMInferenceTrace_code.csv.gz", "vtc-lmsys-27clients.csv.gz"}
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of public traces is not here")


def epa(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a server of 1995, which wrote the day of August only, in the common log format."""
    for line in file:
        client, rest = line.split(b" [", 1)
        yield client + b" - - [" + rest[:2] + b"/Aug/1995:" + rest[3:11] + b" -0400" + rest[11:]


def per_second(file: BinaryIO) -> Iterator[bytes]:
    """One line for each request, from the number of requests in each second."""
    counts = [*map(int, file.read().split())]
    for start in range(0, len(counts), 5_000):
        some = enumerate(counts[start : start + 5_000], start)
        if lines := b"".join([b"%d\n" % second * count for second, count in some]):
            yield lines


def opened(name: str) -> Path | BinaryIO:
    """A trace; two of them have formats of their own, and are translated while they are read."""
    for start, translation in (("epa-", epa), ("nasa-http-1995-per", per_second)):
        if name.startswith(start):
            return io.BufferedReader(Lines(translation(cast("BinaryIO", gzip.open(TRACES / name)))))
    return TRACES / name


def noted(name: str) -> tuple[str, ...]:
    """The numbers of a trace in the list of its makers."""
    found = NOTED.search((TRACES / "README.md").read_text().partition(f"## {name}\n")[2])
    assert found is not None
    return found.groups()


def seconds(us: int | None) -> int:
    return (us or 0) // 1_000_000


def stamp(text: str) -> int:
    return timegm(datetime.fromisoformat(text).timetuple())


@needs_traces
@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(*each, id=each[0], marks=[pytest.mark.soak] * ("per-second" in each[0])) for each in TRACED],
)
def test_counts_of_a_trace(name, options):
    """Lines, requests, first and last second, clients and lines out of order; none is unreadable or late."""
    log = Log([opened(name)], wanted=(), **options)
    clients: set[str] = set()
    for batch in log.batches():
        clients.update([row[1] for row in batch])
    facts = log.facts
    lines, requests, first, last, known, disordered = noted(name)
    headers = int(name in HEADERS)
    # The trace of counts is one line, of which `per_second` makes one for each request.
    assert facts.lines == (int(requests) if "per-second" in name else int(lines) - headers)
    assert (facts.requests, facts.unreadable, facts.late) == (int(requests), 0, 0)
    assert (seconds(facts.first), seconds(facts.last)) == (stamp(first), stamp(last))
    assert (len(clients), "key" in facts.missing) == ((1, True) if known == "not recorded" else (int(known), False))
    assert facts.out_of_order == int(disordered)


COMBINED = re.compile(r'(\S+) \S+ \S+ \[(.*?)\] "(.*?)" (\d+|-) ')


def reference(text: str) -> list[tuple[int, str, int, str, str, int]]:
    """A second reader: a date for each line, one sort over all lines, and counts of each second."""
    found = []
    for line in text.splitlines():
        match = COMBINED.match(line)
        assert match is not None
        client, date, request, status = match.groups()
        second = int(datetime.strptime(date, "%d/%b/%Y:%H:%M:%S %z").timestamp())
        escaped = request.encode().decode("unicode_escape").encode("latin-1")
        words = escaped.decode("utf-8", "backslashreplace").split(" ")
        if words[-1].startswith("HTTP/"):
            words.pop()
        method, path = (words[0], " ".join(words[1:])) if len(words) > 1 else ("", "")
        found.append((second, client, method, path, int(status) if status != "-" else 0))
    found.sort(key=lambda row: row[0])
    counts: dict[int, int] = {}
    for row in found:
        counts[row[0]] = counts.get(row[0], 0) + 1
    rows, place = [], dict.fromkeys(counts, 0)
    for second, client, method, path, code in found:
        time = second * 1_000_000 + place[second] * 1_000_000 // counts[second]
        place[second] += 1
        rows.append((time, client, 1, method, path, code))
    return rows


@needs_traces
@pytest.mark.parametrize(
    "name", [pytest.param("apache-wordpress-2016.log.gz", marks=pytest.mark.soak), "nginx-erddap-api-2024.log.gz"]
)
def test_every_line_of_a_trace_equals_a_reference(name):
    """A reader without any of the shortcuts finds the same requests, one by one."""
    expected = reference(gzip.decompress((TRACES / name).read_bytes()).decode("latin-1"))
    assert [row for batch in Log([TRACES / name]).batches() for row in batch] == expected
