"""A line of callers: one is inside, the others are let in one after another, in the order of their tickets."""

from __future__ import annotations

import pytest

from headgate.client.line import Line

pytestmark = pytest.mark.engineless


class Caller:
    """A caller that notes when it is let in; `gone` callers do not come."""

    def __init__(self, line: Line, let_in: list[int], gone: bool = False) -> None:
        self.ticket = line.ticket()
        self._let_in, self._gone = let_in, gone

    def __call__(self) -> bool:
        if not self._gone:
            self._let_in.append(self.ticket)
        return not self._gone


def test_callers_are_let_in_one_after_another():
    """The first enters at once; each that leaves lets the next one in, until the line is empty."""
    line = Line()
    let_in: list[int] = []
    callers = [Caller(line, let_in) for _ in range(3)]
    assert [line.enter(each.ticket, each) for each in callers] == [True, False, False]
    assert (line.busy, len(line), let_in) == (True, 2, [])
    line.leave()
    assert (line.busy, len(line), let_in) == (True, 1, [1])
    line.leave()
    line.leave()
    assert (line.busy, len(line), let_in) == (False, 0, [1, 2])


def test_a_caller_that_comes_back_keeps_its_place():
    """Its ticket is older than those of the callers that came meanwhile."""
    line = Line()
    let_in: list[int] = []
    early, inside, late = (Caller(line, let_in) for _ in range(3))
    assert line.enter(inside.ticket, inside)
    assert not line.enter(late.ticket, late)
    assert not line.enter(early.ticket, early)
    line.leave()
    line.leave()
    assert let_in == [early.ticket, late.ticket]


def test_a_caller_that_gives_up_is_passed_over():
    """Nobody waits for it."""
    line = Line()
    let_in: list[int] = []
    first, second, third = (Caller(line, let_in) for _ in range(3))
    for each in (first, second, third):
        line.enter(each.ticket, each)
    line.give_up(second.ticket)
    line.leave()
    assert let_in == [third.ticket]


def test_a_caller_that_gives_up_as_it_is_let_in_lets_the_next_one_in():
    """Both happened at once; without this, the line would stand still."""
    line = Line()
    let_in: list[int] = []
    callers = [Caller(line, let_in) for _ in range(3)]
    for each in callers:
        line.enter(each.ticket, each)
    line.leave()
    line.give_up(callers[1].ticket)
    assert (let_in, line.busy) == ([1, 2], True)


def test_callers_that_are_gone_are_passed_over():
    """The event loop of a caller may be closed: the next one comes, or the line is free."""
    line = Line()
    let_in: list[int] = []
    callers = [Caller(line, let_in), Caller(line, let_in, gone=True), Caller(line, let_in)]
    for each in callers:
        line.enter(each.ticket, each)
    line.leave()
    assert let_in == [2]
    line.leave()
    assert not line.busy


def test_a_caller_whose_loop_was_closed_is_not_waited_for():
    """The next caller that comes takes its place, and those that waited before it are let in after it."""
    line = Line()
    let_in: list[int] = []
    callers = [Caller(line, let_in) for _ in range(3)]
    closed = [False]
    assert line.enter(callers[0].ticket, callers[0], lambda: closed[0])
    assert not line.enter(callers[1].ticket, callers[1], lambda: closed[0])
    closed[0] = True
    assert line.enter(callers[2].ticket, callers[2])
    line.leave()
    assert (line.busy, let_in) == (True, [1])
    line.leave()
    assert not line.busy
