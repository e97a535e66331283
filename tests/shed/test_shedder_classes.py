"""Classes of requests at a load shedder: critical ones, those of busy workers, and classes of an app's own."""

from __future__ import annotations

import os

from headgate.shed import LoadShedder, current_class, outgoing_headers


def test_critical_requests_are_not_part_of_a_dip(clock):
    """While the limit is lowered to measure, critical requests still have the whole limit."""
    shedder = LoadShedder(clock=clock)
    shedder.estimator.limit, shedder.estimator.undipped = 1, 2
    held = shedder.permit("sheddable_plus")
    assert not shedder.permit("sheddable_plus")
    assert shedder.permit("critical").release()
    assert held.release()


def test_workers_shed_the_lowest_classes(clock):
    """Workers that are busy for 148 s shed all of the lowest class; critical requests pass."""
    shedder = LoadShedder(100, workers=[lambda: 1.0], clock=clock)
    for _ in range(148):
        shedder.permit("critical").release()
        clock.advance(1)
    assert shedder.permit("sheddable").reason == "workers"
    assert shedder.permit("sheddable_plus").release()
    assert shedder.permit("critical").release()


def test_a_forked_child_starts_with_nothing_in_flight():
    """The requests in flight are the parent's; the child has the whole limit, and may end what it inherited."""
    shedder = LoadShedder(1)
    held = shedder.permit()
    child = os.fork()
    if not child:
        right = shedder.stats().in_flight == 0 and bool(shedder.permit().release()) and bool(held.release())
        os._exit(0 if right and shedder.stats().in_flight == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shedder.stats().in_flight == 1
    held.release()


def test_the_class_is_known_inside_of_a_block(clock):
    """`current_class` and `outgoing_headers` tell the class to calls of other services, and nothing outside."""
    shedder = LoadShedder(3, clock=clock)
    assert (current_class(), outgoing_headers()) == (None, {})
    with shedder.permit("critical"):
        with shedder.permit("sheddable"):
            assert current_class() == "sheddable"
        assert (current_class(), outgoing_headers()) == ("critical", {"x-request-class": "critical"})
    assert current_class() is None


def test_own_classes(clock):
    """The first half of an own order, rounded up, is critical; a request without a class has the first after it."""
    shedder = LoadShedder(1, classes=["paid", "free", "batch"], clock=clock)
    assert shedder.classes.critical == 2
    assert shedder.permit().request_class == "batch"
    assert LoadShedder(1, classes=["only"]).permit().request_class == "only"
