"""The queue of one class: fair between tenants."""

from __future__ import annotations

import sys
from collections import Counter
from heapq import heapify
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.waiting.fair_queue import MOST_TENANTS, FairQueue
from tests.support.inside import tenants_kept

pytestmark = pytest.mark.engineless


def served(queue, count, newest=False):
    """The next requests."""
    return [queue.take(newest) for _ in range(count)]


def test_tenants_take_turns():
    """Three requests of one tenant and one of another: the other does not wait for all three."""
    queue: FairQueue[Any] = FairQueue()
    for request in ("a1", "a2", "a3"):
        queue.add("a", 1, request)
    queue.add("b", 1, "b1")
    assert served(queue, 5) == ["a1", "b1", "a2", "a3", None]


@pytest.mark.parametrize(("heavy", "light"), [(1e20, 1.0), (1e6, 1e-12), (1.0, 5e-324)])
def test_weights_may_differ_by_any_factor(heavy, light):
    """A sum keeps nothing of a weight of 1 beside one of 10^20, and when that has left, the light one is served."""
    queue: FairQueue[Any] = FairQueue()
    queue.add("heavy", heavy, "h")
    for request in ("l1", "l2"):
        queue.add("light", light, request)
    assert (served(queue, 4), queue.size) == (["h", "l1", "l2", None], 0)


def test_weights_are_shares():
    """Of tenants that always wait, one with weight 3 is served three times as often."""
    queue: FairQueue[Any] = FairQueue()
    for number in range(400):
        queue.add("pro", 3, ("pro", number))
        queue.add("free", 1, ("free", number))
    assert Counter(tenant for tenant, _ in served(queue, 400)) == {"pro": 300, "free": 100}


def test_many_waiting_tenants_are_not_looked_through_for_each_other():
    """Where more tenants wait than are kept, there is none to forget, and each further one costs the same."""
    queue: FairQueue[Any] = FairQueue()
    looks = 0

    def count(frame: object, event: str, called: object) -> None:
        nonlocal looks
        looks += event == "c_call" and called is heapify

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for number in range(MOST_TENANTS + 500):
            queue.add(str(number), 1, number)
    finally:
        sys.setprofile(before)
    assert looks <= 2


def test_a_pause_earns_nothing():
    """A tenant that comes late has its share from then on, and nothing for the time before."""
    queue: FairQueue[Any] = FairQueue()
    for number in range(20):
        queue.add("a", 1, f"a{number}")
    served(queue, 10)
    for number in range(5):
        queue.add("b", 1, f"b{number}")
    assert served(queue, 4) == ["b0", "a10", "b1", "a11"]


def test_a_tenant_that_comes_back_at_once_has_saved_nothing():
    """It starts where the others are, also before the queue has forgotten it: they may have been served much."""
    queue: FairQueue[Any] = FairQueue()
    for number in range(3):
        queue.add("b", 1, f"b{number}")
    queue.add("a", 1, "a0")
    queue.remove("a", "a0")
    assert served(queue, 1) == ["b0"]
    queue.charge("b", 5)
    for number in range(1, 4):
        queue.add("a", 1, f"a{number}")
    assert served(queue, 4) == ["a1", "b1", "a2", "b2"]


def test_new_tenants_do_not_hold_up_one_that_was_served():
    """A flood of tenants that each wait once, thirty at a time: one tenant among them has a share of a thirtieth."""
    queue: FairQueue[Any] = FairQueue()
    went: list[Any] = []
    for number in range(900):
        queue.add("patient", 1, ("patient", number))
        queue.add(f"t{number}", 1, number)
        if number > 30:
            queue.remove(f"t{number - 30}", number - 30)
            went.append(queue.take(newest=False))
    assert 25 <= sum(isinstance(each, tuple) for each in went) <= 33


def test_newest_first():
    """Inside a tenant the newest request can go first."""
    queue: FairQueue[Any] = FairQueue()
    for request in ("a1", "a2"):
        queue.add("a", 1, request)
    assert served(queue, 2, newest=True) == ["a2", "a1"]


def test_the_longest_queue_for_its_weight_is_dropped_from():
    """Weight 5 may have four waiting where weight 1 has two: the two are the longer queue."""
    queue: FairQueue[Any] = FairQueue()
    for number in range(4):
        queue.add("pro", 5, f"pro{number}")
    for number in range(2):
        queue.add("free", 1, f"free{number}")
    assert [queue.drop(newest=True) for _ in range(3)] == ["free1", "free0", "pro3"]
    assert queue.drop(newest=False) == "pro0"
    assert queue.size == 2


def test_a_request_can_leave():
    """A request that gave up is removed once; the others keep their order."""
    queue: FairQueue[Any] = FairQueue()
    for request in ("a1", "a2"):
        queue.add("a", 1, request)
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert not queue.remove("b", "a1")
    assert served(queue, 2) == ["a2", None]


def test_invented_tenants_do_not_fill_the_memory():
    """A hundred thousand tenants that each wait once leave no more than the bound behind."""
    queue: FairQueue[Any] = FairQueue()
    queue.add("patient", 1, "first")
    for number in range(100_000):
        queue.add(f"t{number}", 1, number)
        assert queue.take(newest=False) is not None
    assert queue.size == 1
    tenants, lengths = tenants_kept(queue)
    assert tenants <= MOST_TENANTS + 1
    assert lengths <= 5 * MOST_TENANTS


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "drop", "remove"]), st.integers(0, 4)), max_size=120))
def test_no_request_is_lost_or_served_twice(steps):
    """Whatever happens, each request leaves the queue once: served, dropped or removed."""
    queue: FairQueue[Any] = FairQueue()
    inside: set[tuple[int, int]] = set()
    added = 0
    for step, tenant in steps:
        if step == "add":
            added += 1
            queue.add(f"t{tenant}", tenant + 1, (tenant, added))
            inside.add((tenant, added))
        elif step == "remove":
            mine = [request for request in inside if request[0] == tenant]
            assert queue.remove(f"t{tenant}", mine[0] if mine else None) == bool(mine)
            inside -= set(mine[:1])
        else:
            left = queue.take(newest=bool(tenant % 2)) if step == "take" else queue.drop(newest=bool(tenant % 2))
            assert (left is None) == (not inside)
            inside.discard(left)
        assert queue.size == len(inside)
