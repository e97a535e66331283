"""SIGKILL at any instant, taken literally: a child is stepped through a decision and killed after each instruction.

From the first change it makes to the shared memory to the last, every instruction is the last of one child. After each
kill another process must answer at once and exactly, from a state that is the one before or the one after, whole.
"""

from __future__ import annotations

import ctypes
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
from headgate.testing import ManualClock
from tests.test_shared import words_of

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


def stopped_child(act: Callable[[], object]) -> int:
    """A forked child that has stopped right before it acts."""
    child = os.fork()
    if child == 0:
        try:
            assert ptrace is not None
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


def trace(act: Callable[[], object], tables: list[memoryview], after: int | None) -> int:
    """Step a child to its first change of the tables, then so many instructions on, and kill it.

    Without a number: run it to its end, and say how many instructions lie between the first change and the last.
    """
    child = stopped_child(act)
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
    "a bucket is charged": ("10/minute", "k"),
    "a bucket is new": ("10/minute", "new"),
    "a fixed window is charged": ("10/minute by fixed-window", "k"),
    "a fixed window is new": ("10/minute by fixed-window", "new"),
    "sub-windows move on": ("10/minute by sliding-window/3", "k"),
    "a log is charged": ("10/minute by sliding-log", "k"),
    "two limits": ("10/minute; 10/hour by fixed-window", "k"),
}


def remaining(limiter: Limiter, key: str) -> list[int]:
    return [verdict.remaining for verdict in limiter.peek(key, 0).verdicts]


def kill_at_every_instruction(path: Path, text: str, key: str, stride: int) -> int:
    """How many instants were tried; fails at the first after which the state is neither the old nor the new one."""
    clock = ManualClock(1e9)

    def fresh() -> tuple[Limiter, list[memoryview]]:
        shutil.rmtree(path, ignore_errors=True)
        clock.set(1e9)
        limiter = Limiter(text, store=SharedStore(str(path), max_keys=8, clock=clock), on_error="raise")
        limiter.hit("k", 4)
        clock.advance(0.000025)
        return limiter, [words_of(file) for file in sorted(path.glob("*.table"))]

    limiter, tables = fresh()
    old = remaining(limiter, key)
    length = trace(lambda: limiter.hit(key, 3), tables, None)
    new = remaining(limiter, key)
    assert new == [left - 3 for left in old]
    for after in range(0, length + 2, stride):
        limiter, tables = fresh()
        trace(lambda limiter=limiter: limiter.hit(key, 3), tables, after)
        left = remaining(limiter, key)
        assert all(seen in both for seen, *both in zip(left, old, new, strict=True)), (text, key, after, left)
        assert limiter.take_up_to(key, 10).granted == min(left)
        assert not limiter.hit(key)
    return length


@pytest.mark.parametrize("case", CASES)
def test_a_kill_at_any_instruction_leaves_the_old_state_or_the_new(tmp_path, case):
    """Every seventh instruction here; every one in `make soak`."""
    text, key = CASES[case]
    kill_at_every_instruction(tmp_path / "store", text, key, stride=7)
