"""Permits in a shared store whose holder is killed at any instant."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate import Limiter
from headgate.stores.shared import SharedStore
from tests.limiter.in_flight.test_permits_processes import folder_of, shares
from tests.stores.test_shared_instants import MOST_STEPS, can_trace, changes, step, stopped_child
from tests.support.forks import in_child
from tests.support.inside import bound_of
from tests.support.sharing import words_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

traces = pytest.mark.skipif(not can_trace(), reason="processes cannot be traced here")


class Case(NamedTuple):
    """Something a process is killed in the middle of, while this one holds 4 of 10."""

    prepare: Callable[[Limiter], Callable[[], object]]
    """Makes the call that is stepped through: as native as can be, for every instruction before it takes its time."""
    key: str = "k"
    dead: int = 0
    """What another one held that has died before."""
    left: tuple[int, ...] = (6,)
    text: str = "10 in flight"


CASES = {
    "a permit is taken": Case(lambda limiter: partial(limiter.hit, "k", 3)),
    "the first permit of a key is taken": Case(lambda limiter: partial(limiter.hit, "new", 3), key="new", left=(10,)),
    "a permit is given back": Case(lambda limiter: partial(limiter.release, limiter.hit("k", 2))),
    "a part of a permit is given back": Case(
        lambda limiter: partial(bound_of(limiter).give, ("k",), (1,), (limiter.hit("k", 2).verdicts[0].mark,))
    ),
    "the dead are buried": Case(lambda limiter: partial(limiter.hit, "k", 6), dead=5),
    "a key is made as new": Case(lambda limiter: partial(bound_of(limiter).clear, "k"), left=(6, 10)),
    "a rate is charged too": Case(
        lambda limiter: partial(limiter.hit, "k", 3), text="10 in flight; 99/4 weeks block 1h"
    ),
}


def killed_after(path: Path, case: Case, after: int | None) -> int:
    """Kill a child after this number of changes, or let it end, and check the permits; return the number of changes."""
    shutil.rmtree(path, ignore_errors=True)
    limiter = Limiter(case.text, store=SharedStore(str(path), max_keys=8), on_error="raise")
    mine = limiter.hit("k", 4)
    if case.dead:
        assert in_child(lambda: limiter.hit("k", case.dead).allowed)
    tables = [words_of(file) for file in sorted(path.glob("*.table"))]
    count = run_child(limiter, case, tables, after)
    seen = limiter.peek(case.key, 0).verdicts[0].remaining
    assert seen in case.left, after
    assert sum(each.units for each in limiter.holders(case.key)) == 10 - seen
    limiter.release(mine)
    assert limiter.peek(case.key, 0).verdicts[0].remaining == 10
    assert limiter.hit(case.key, 10)
    assert not limiter.hit(case.key)
    return count


def run_child(limiter: Limiter, case: Case, tables: list[memoryview], after: int | None) -> int:

    def taking_part() -> Callable[[], object]:
        limiter.hit("other")
        return case.prepare(limiter)

    child = stopped_child(taking_part)
    seen, count = [table.tobytes() for table in tables], 0
    for _ in range(MOST_STEPS):
        if not step(child):
            return count
        if changes(tables, seen):
            seen, count = [table.tobytes() for table in tables], count + 1
            if count == after:
                break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return count


@shares
@traces
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_at_any_instant_leaves_the_permits_of_others_and_nothing_else(url, case, every):
    """Every second state of the shared memory is once the last that the killed process has left; in a soak, each is.

    Between two changes it makes no difference to others when it dies.
    """
    path = folder_of(url)
    count = killed_after(path, CASES[case], None)
    assert count >= 4
    for after in range(1, count + 1, every):
        assert killed_after(path, CASES[case], after) == after
