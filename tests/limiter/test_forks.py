"""What a fork copies, while other threads are at work."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate import Limiter, MemoryStore
from headgate.engine import Decision
from headgate.forks import after_fork
from headgate.testing import ManualClock
from tests.support.flight import forks, in_child
from tests.support.homes import LATER

pytestmark = [forks, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

Case = tuple[Any, Callable[[], object]]
"""A lock, and what a child does that needs it."""


def giving_back() -> Case:
    limiter = Limiter("10/minute by fixed-window", clock=ManualClock(LATER))
    spent = limiter.hit("k", 4)
    return sys.modules[Decision.__module__]._refunding, lambda: limiter.refund(spent)


def opening_a_site() -> Case:
    pytest.importorskip("django")
    from headgate.web.django.site import _Opened

    opened = _Opened()
    return opened._lock, lambda: opened._use(MemoryStore())


@pytest.mark.parametrize("case", [giving_back, opening_a_site])
def test_a_lock_held_in_the_parent_holds_up_no_child(case):
    """Forked while another thread holds it, the child does what needs it, and ends."""
    lock, act = case()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(30)
        assert in_child(act) == "None"
    finally:
        done.set()
        thread.join()


class Noted:
    """Writes its name down in a child."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name, self._notes = name, notes
        after_fork(self.note)

    def note(self) -> None:
        self._notes.append(self._name)
        if self._name == "fails":
            raise ValueError(self._name)


def test_objects_are_renewed_in_the_order_they_were_made_each_whatever_the_others_do():
    """One that fails takes nothing from those behind it, and one that is gone is not called any more."""
    notes: list[str] = []
    kept = [Noted(name, notes) for name in ("first", "fails", "gone", "last")]
    del kept[2]
    gc.collect()
    assert in_child(lambda: notes) == "['first', 'fails', 'last']"
    assert notes == []


def test_an_interpreter_ends_without_a_word():
    """Objects that go with their modules, in whatever order that is, leave nothing to say."""
    code = "import headgate.stores.redis, headgate; kept = headgate.Limiter('1/s')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")
