"""Order: lines that are up to 5 minutes late are sorted in bounded memory, and whole seconds are spread."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.clock import SECOND
from headgate.errors import InvalidCall
from headgate.lab.logs import Log, Row
from headgate.lab.logs import order as module
from headgate.lab.logs.order import Order
from tests.lab.logs.support import START, common, common_log, drained, log_of, read

pytestmark = pytest.mark.engineless


def at(second: float) -> int:
    return round((START + second) * SECOND)


def rows_at(*seconds: float) -> list[Row]:
    return [(at(second), f"c{i}", 1, "", "", 0) for i, second in enumerate(seconds)]


def given(order: Order, floor: int | None) -> list[Row]:
    return [row for batch in order.ready(floor) for row in batch]


def test_lines_are_sorted_by_time():
    """A line may come after later ones; requests of the same second stay in the order of their lines."""
    log = log_of(common_log(10, 7, 10, 9, 12))
    assert [request[:2] for request in log] == [
        (at(7), "c1"),
        (at(9), "c3"),
        (at(10), "c0"),
        (at(10.5), "c2"),
        (at(12), "c4"),
    ]
    assert (log.facts.out_of_order, log.facts.late) == (2, 0)


def test_a_line_five_minutes_late_is_sorted_and_a_later_one_left_out():
    """The ledger of the newest second: 300 s before it is still sorted, 301 s before it is counted as late."""
    log = log_of(common_log(0, 301, 1, 0, 302, 1))
    assert [request[:2] for request in log] == [(at(0), "c0"), (at(1), "c2"), (at(301), "c1"), (at(302), "c4")]
    facts = log.facts
    assert (facts.late, facts.out_of_order, facts.requests, facts.lines) == (2, 3, 4, 6)


def test_a_second_is_spread_over_its_requests():
    """The i-th of n requests gets the i-th part of n of their second, rounded down."""
    times = [request[0] for request in read(common_log(0, 0, 0, 1, 2, 2))]
    assert times == [at(0), at(0) + 333_333, at(0) + 666_666, at(1), at(2), at(2.5)]


def test_stamps_may_stay_as_they_are():
    """With `as-is`, all requests of a second have its first instant."""
    log = log_of(common_log(0, 0, 1), stamps="as-is")
    assert [request.time for request in log] == [at(0), at(0), at(1)]
    assert not log.facts.spread
    with pytest.raises(InvalidCall, match=r"'spred' is no way to read stamps; did you mean 'spread'\?"):
        log_of(common_log(0), stamps="spred")


def test_stamps_with_fractions_are_not_spread():
    """One fraction in the first lines is enough; requests of a second are sorted by it."""
    log = log_of(f"ts,who\n{START}.75,a\n{START},b\n{START}.5,c\n{START + 1},d\n", fields={"time": "ts", "key": "who"})
    assert [request[:2] for request in log] == [(at(0), "b"), (at(0.5), "c"), (at(0.75), "a"), (at(1), "d")]
    assert not log.facts.spread and log.facts.out_of_order == 1


def test_files_are_ordered_by_their_first_lines():
    """Rotated files may be given newest first. Lines at the seam that overlap are merged."""
    older, newer = common_log(0, 60, 130), common_log(120, 125, 200)
    expected = [at(second) for second in (0, 60, 120, 125, 130, 200)]
    assert [request[0] for request in read(newer, older)] == expected
    assert [request[0] for request in read(older, newer)] == expected


def test_files_of_the_same_time_are_merged():
    """Two servers log side by side for hours; no line of the second file is late because the first was read before."""
    one, two = (common_log(*range(start, 20_000, 2)) for start in (0, 1))
    log = log_of(one, two)
    assert [request.time for request in log] == [at(second) for second in range(20_000)]
    assert (log.facts.late, log.facts.out_of_order, log.facts.lines) == (0, 0, 20_000)


def test_requests_of_busy_seconds_are_packed_and_stay_in_order():
    """A line that comes for a packed second is not late, and follows the requests of that second."""
    order = Order(spread=False, most=3)
    newest = order.add(rows_at(0, 0, 1, 2, 2), at(0))
    assert given(order, at(2) - 300 * SECOND) == []
    order.add(rows_at(0, 1), newest)
    assert [row[0] for row in given(order, at(1))] == [at(0), at(0), at(0)]
    assert [row[1] for row in given(order, None)] == ["c2", "c1", "c3", "c4"]
    assert (order.late, order.requests) == (0, 7)


def test_five_minutes_of_many_requests_are_sorted():
    """At 700 requests a second, a line that is 299 s late finds its place."""
    order = Order(spread=False)
    newest = at(0)
    for second in range(300):
        newest = order.add([(at(second), "a", 1, "GET", "/", 200)] * 700, newest)
        assert given(order, newest - 300 * SECOND) == []
    order.add([(at(0), "late", 1, "GET", "/", 200)], newest)
    rows = given(order, None)
    assert (order.late, len(rows), rows[700][1]) == (0, 210_001, "late")


def test_too_many_packed_requests_are_given_out_early(monkeypatch):
    """The oldest seconds go first and whole; a line that comes for them afterwards is late."""
    monkeypatch.setattr(module, "MOST_PACKED", 100)
    order = Order(spread=False, most=3)
    newest = order.add(rows_at(0, 0, 1, 2, 2), at(0))
    assert [row[0] for row in given(order, at(2) - 300 * SECOND)] == [at(0), at(0)]
    assert newest == at(2)
    order.add(rows_at(0, 1), newest)
    assert order.late == 1
    assert [row[1] for row in given(order, None)] == ["c2", "c1", "c3", "c4"]


def test_a_second_that_was_given_out_early_is_not_opened_again(monkeypatch):
    """A line that comes for it after a newer line, among the same lines, is late too: the order holds."""
    monkeypatch.setattr(module, "MOST_PACKED", 100)
    order = Order(spread=False, most=3)
    newest = order.add(rows_at(0, 0, 1, 2, 2), at(0))
    assert [row[0] for row in given(order, at(2) - 300 * SECOND)] == [at(0), at(0)]
    assert order.add(rows_at(3, 0), newest) == at(3)
    assert order.late == 1
    assert [row[0] for row in given(order, None)] == [at(1), at(2), at(2), at(3)]


def test_requests_are_given_out_before_the_log_ends():
    """Only 5 minutes of requests are held back: a log of an hour is read lazily."""
    log = log_of("".join(common(second, path="/" + "x" * 500) for second in range(3600)))
    first = next(iter(log.batches()))
    assert first[0][0] == at(0)
    assert log.facts.lines < 1000 and log.facts.requests == len(first)


def test_a_log_is_read_once():
    """A second reading would find an empty pipe, and is refused."""
    log = drained(log_of(common_log(0)))
    with pytest.raises(InvalidCall, match="a log is read once: make another Log"):
        next(log.batches())


def test_iteration_yields_requests_with_names():
    """A request is a tuple whose parts have names."""
    (request,) = log_of(common(5, "b", "/p?q"))
    assert request == (request.time, request.key, request.cost, request.method, request.path, request.status)
    assert request == (at(5), "b", 1, "GET", "/p?q", 200)


def test_files_must_be_a_list():
    """One path is not a list of paths, and no path is no log."""
    wrong: list[Any] = ["access.log", []]
    for files in wrong:
        with pytest.raises(InvalidCall, match=r"files must be a list of one or more paths or open files"):
            Log(files)
