"""SIGKILL at any instant, taken literally: a child is stepped through a decision and killed after each instruction.

From the first change it makes to the shared memory to the last, instructions are chosen to be a child's last. After
each kill another process must answer at once and exactly, from a state that is the one before or the one after, whole.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate import Limiter
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from tests.support.sharing import words_of

TRACE_ME, SINGLE_STEP = 0, 9
MOST_STEPS = 60_000

ptrace = ctypes.CDLL(None, use_errno=True).ptrace if sys.platform == "linux" else None


def can_trace() -> bool:
    """Not every container lets a process trace its child."""
    if ptrace is None or platform.machine() not in {"x86_64", "AMD64"}:
        return False
    ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    child = os.fork()
    if child == 0:
        os._exit(0 if ptrace(TRACE_ME, 0, 0, 0) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


pytestmark = [
    pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine"),
    pytest.mark.skipif(not can_trace(), reason="processes cannot be traced here"),
]


def stopped_child(prepare: Callable[[], Callable[[], object]]) -> int:
    """A forked child that has stopped right before it acts."""
    child = os.fork()
    if child == 0:
        try:
            assert ptrace is not None
            act = prepare()
            ptrace(TRACE_ME, 0, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return child


def step(child: int) -> bool:
    """One instruction; False when the child has ended."""
    assert ptrace is not None
    ptrace(SINGLE_STEP, child, 0, 0)
    return os.WIFSTOPPED(os.waitpid(child, 0)[1])


def changes(views: list[memoryview], start: list[bytes]) -> bool:
    return any(view.tobytes() != before for view, before in zip(views, start, strict=True))


def trace(limiter: Limiter, key: str, tables: list[memoryview], after: int | None) -> int:
    """Step a child to its first change of the tables, then `after` instructions on, and kill it.

    Without a number: run it to its end, and say how many instructions lie between the first change and the last.
    """

    def taking_part() -> Callable[[], object]:
        limiter.peek("k")
        return functools.partial(limiter.hit, key, 3)

    child = stopped_child(taking_part)
    before = [table.tobytes() for table in tables]
    steps = last = 0
    for _ in range(MOST_STEPS):
        if not step(child):
            return last
        if changes(tables, before):
            break
    seen = [table.tobytes() for table in tables]
    while steps != after:
        if not step(child):
            return last
        steps += 1
        if after is None and changes(tables, seen):
            seen, last = [table.tobytes() for table in tables], steps
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return last


CASES = {
    "a bucket is charged": ("10/4 weeks", "k"),
    "a bucket is new": ("10/4 weeks", "new"),
    "a fixed window is charged": ("10/4 weeks by fixed-window", "k"),
    "a fixed window is new": ("10/4 weeks by fixed-window", "new"),
    "sub-windows are charged": ("10/4 weeks by sliding-window/3", "k"),
    "a log is charged": ("10/4 weeks by sliding-log", "k"),
    "two limits": ("10/4 weeks; 10/3 weeks by fixed-window", "k"),
}


def remaining(limiter: Limiter, key: str) -> list[int]:
    return [verdict.remaining for verdict in limiter.peek(key, 0).verdicts]


def fresh(path: Path, text: str) -> tuple[Limiter, list[memoryview]]:
    """A store in which "k" has used 4 of 10, and the memory of its tables."""
    shutil.rmtree(path, ignore_errors=True)
    limiter = Limiter(text, store=SharedStore(str(path), max_keys=8), on_error="raise")
    limiter.hit("k", 4)
    return limiter, [words_of(file) for file in sorted(path.glob("*.table"))]


def kill_at_instructions(path: Path, text: str, key: str, instants: int) -> None:
    """Kill at these `instants`: spread evenly from the first change to the last, or at each if they are fewer."""
    limiter, tables = fresh(path, text)
    old = remaining(limiter, key)
    length = trace(limiter, key, tables, None)
    new = remaining(limiter, key)
    assert new == [left - 3 for left in old]
    for after in sorted({round(n * (length + 1) / instants) for n in range(instants + 1)}):
        limiter, tables = fresh(path, text)
        trace(limiter, key, tables, after)
        left = remaining(limiter, key)
        assert all(seen in both for seen, *both in zip(left, old, new, strict=True)), (text, key, after, left)
        assert limiter.take_up_to(key, 10).granted == min(left)
        assert not limiter.hit(key)


@pytest.mark.parametrize("case", CASES)
def test_a_kill_at_any_instruction_leaves_the_old_state_or_the_new(tmp_path, case):
    """A few instants here; many more in `make soak`."""
    kill_at_instructions(tmp_path / "store", *CASES[case], instants=5)


def carried(path: Path) -> tuple[Limiter, list[memoryview]]:
    """A store in which "small" has used 4 of a log that the limiter's own states are larger than."""
    fresh(path, "10/4 weeks by sliding-log")
    store = SharedStore(str(path), max_keys=8)
    Limiter("10/4 weeks by sliding-log", store=store, on_error="raise").hit("small", 4)
    limiter = Limiter("40/4 weeks by sliding-log", store=store, on_error="raise")
    return limiter, [words_of(file) for file in sorted(path.glob("*.table"))]


def kill_while_carrying(path: Path, instants: int) -> None:
    limiter, tables = carried(path)
    length = trace(limiter, "small", tables, None)
    for after in sorted({round(n * (length + 1) / instants) for n in range(instants + 1)}):
        limiter, tables = carried(path)
        trace(limiter, "small", tables, after)
        left = remaining(limiter, "small")
        assert left in ([36], [33]), (after, left)
        assert limiter.take_up_to("small", 40).granted == left[0]
        assert not limiter.hit("small")


@pytest.mark.parametrize("instants", [10, pytest.param(40, marks=pytest.mark.soak)])
def test_a_kill_while_a_state_is_carried_loses_nothing(tmp_path, instants):
    """A log on its way to a larger table, and charged there, has the old stamps or the new ones."""
    kill_while_carrying(tmp_path / "store", instants)
