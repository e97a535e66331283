"""The page of published claims: its figures are those that come out, and they agree with the lab's."""

from __future__ import annotations

import re
from functools import cache

import pytest

from headgate.engine import NATIVE
from headgate.lab import replay
from tests.support import ROOT
from tests.support.claims import (
    BY,
    MADE,
    MADE_LIMIT,
    MEASURES,
    TRACES,
    experiment,
    log_of,
    made,
    source_row,
    wrong_row,
)

pytestmark = pytest.mark.engineless

PAGE = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
OURS = re.compile(r"^\| \[([^\]]+)\]\([^)]+\) \| ([^|]+) \| ([^|]+) \| (holds|holds only if [^|]+|does not hold) \|$")
NATIVE_TRACES = [name for name in TRACES if NATIVE or name != "WordPress"]
"""The longest log is left out on the pure engine."""


@cache
def rows():
    """All rows of the page's tables, as tuples of their cells."""
    return {tuple(line.strip("| ").split(" | ")) for line in PAGE.splitlines() if line.startswith("| ")}


@cache
def requests_of(name):
    """The requests of a log."""
    with log_of(name) as log:
        return list(log)


@cache
def found_in(name):
    """What the window did to the requests of a log, or to made ones."""
    if name in MADE:
        return experiment(made(name), MADE_LIMIT)
    return experiment(requests_of(name), TRACES[name].limit)


def ours():
    """The figures of the first table, by the article and its claim."""
    return {(line[1], line[2]): line[3] for line in map(OURS.match, PAGE.splitlines()) if line}


@pytest.mark.parametrize("name", NATIVE_TRACES)
def test_the_rows_of_a_log_are_those_that_come_out(name):
    """Wrong answers and sources of a real log, to the digit, and its totals are those of `headgate.lab.replay`."""
    found = found_in(name)
    assert wrong_row(name, TRACES[name].limit, found) in rows()
    assert source_row(name, found) in rows()
    compared = replay(requests_of(name), f"{TRACES[name].limit} {BY}")
    (lab,) = compared.limits
    wrong = [lab.same_past, lab.own_past, lab.offered]
    assert (compared.requests, compared.clients, lab.most) == (found.requests, len(found.sources), found.most)
    assert [each and each.passed + each.refused for each in wrong] == [found.wrong[each] for each in MEASURES]


@pytest.mark.parametrize("name", MADE)
def test_the_rows_of_made_traffic_are_those_that_come_out(name):
    """Made traffic is the same everywhere, so its rows are too."""
    found = found_in(name)
    assert wrong_row(name, MADE_LIMIT, found) in rows()
    assert source_row(name, found) in rows()


@pytest.mark.skipif(not NATIVE, reason="the longest log is left out on the pure engine")
def test_the_first_table_sums_the_logs_up():
    """Its figures are the ranges and the sums of the rows of the four logs."""
    found = [found_in(name) for name in TRACES]
    offered = [100 * each.wrong["offered"] / each.requests for each in found]
    gaps = [100 * each.gap / each.requests for each in found]
    passed = [each.most / each.amount for each in found]
    missed = [source.most / each.amount - 1 for each in found for source in each.missed]
    limited = sum(source.mitigated for each in found for source in each.sources.values())
    said = ours()
    assert said["Cloudflare", "0.003 % of requests wrongly allowed or limited"] == (
        f"{min(offered):.3f} % to {max(offered):.3f} %"
    )
    assert said["Cloudflare", "6 % between real and approximate rate, on average"] == (
        f"{min(gaps):.1f} % to {max(gaps):.1f} %"
    )
    assert said["Cloudflare", "3 sources above the limit were missed, by less than 15 %"] == (
        f"{len(missed)} of {sum(len(each.above) for each in found)}, by up to {max(missed):.0%}".replace("%", " %")
    )
    assert said["retold", "at most 15 % over the limit"] == (
        f"{min(passed):.2f}x to {max(passed):.2f}x, at worst 1.99x"
    )
    assert said["Cloudflare", "no limited source was below the limit"] == (
        f"{sum(len(each.blamed) for each in found)} of {limited} were"
    )


def test_the_gap_of_made_traffic_is_between_those_of_the_first_table():
    """The smallest and the largest mean gap of all made traffic are the ends of the range that is stated."""
    gaps = [100 * found.gap / found.requests for found in map(found_in, MADE)]
    assert ours()["retold", "about 1 %, typically under 1 %"] == f"{min(gaps):.1f} % to {max(gaps):.1f} %"


def weighed():
    """The rows of bytes: the limit, the bytes of one client in each column, the clients, and megabytes."""
    for row in rows():
        if row[0].startswith("`"):
            *sizes, clients = (int(cell.replace(",", "")) for cell in row[1:7])
            yield row[0].strip("`"), sizes, clients, row[7]


def test_bytes_of_a_state_are_those_of_the_lab():
    """Six limits, and the state of each has the bytes that the lab counts; a store takes more than the bare state."""
    found = {limit: sizes for limit, sizes, *_ in weighed()}
    assert len(found) == 6
    assert {limit: sizes[0] for limit, sizes in found.items()} == {
        limit: replay([], limit).limits[0].bytes for limit in found
    }
    assert all(state < memory and state < shared for state, memory, shared, *_ in found.values())


def test_megabytes_are_bytes_times_clients():
    """The last column is the product of two others."""
    for _, (_, *stores), clients, megabytes in weighed():
        assert megabytes == " / ".join(f"{each * clients / 1e6:,.1f}" for each in stores)


def test_the_first_table_sums_the_bytes_up():
    """Its ranges are the least and the most that our stores take."""
    totals = {(limit, clients): [each * clients for each in sizes[1:4]] for limit, sizes, clients, _ in weighed()}
    a_million = [each * 100 for each in totals["500/day by sliding-log", 10_000]]
    expected = {
        ("Figma", "logs of 10,000 users: 20 MB"): between(totals["500/day by sliding-log", 10_000], "MB", 0),
        ("Figma", "60 counters for each of them: 2.4 MB"): between(
            totals["500/day by sliding-window/60", 10_000], "MB", 1
        ),
        ("retold", "logs of two million clients: 2.8 GB"): between(
            totals["100/minute by sliding-log", 2_000_000], "GB", 1
        ),
        ("retold", "two counters for each of them: 320 MB"): between(
            totals["100/minute by sliding-window", 2_000_000], "MB", 0
        ),
        ("System Overflow", "logs of 1,000 for 100,000 users: 800 MB"): between(
            totals["1000/minute by sliding-log", 100_000], "MB", 0
        ),
        ("Whiteboard Scale", "logs of 500 for a million users: 12 GB"): between(a_million, "GB", 1),
    }
    assert {claim: ours()[claim] for claim in expected} == expected


def between(totals, unit, digits):
    """The least and the most of some bytes."""
    size = {"MB": 1e6, "GB": 1e9}[unit]
    return f"{min(totals) / size:,.{digits}f} {unit} to {max(totals) / size:,.{digits}f} {unit}"


def test_every_claim_has_a_verdict():
    """Fourteen claims, each with one of three verdicts."""
    table = PAGE.split("## ")[0]
    assert len(ours()) == table.count("\n| [") == 14
