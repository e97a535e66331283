"""What a fork copies, while other threads are at work."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate import Limiter, MemoryStore, Shaper
from headgate.engine import Decision
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


def pumping() -> Case:
    pump = Shaper("10/second queue 3", clock=ManualClock(LATER)).drain("abc", when_full="drop")
    next(pump)
    return pump._more, pump.close


def opening_a_site() -> Case:
    pytest.importorskip("django")
    from headgate.web.django.site import _Opened

    opened = _Opened()
    return opened._lock, lambda: opened._use(MemoryStore())


@pytest.mark.parametrize("case", [giving_back, pumping, opening_a_site])
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
