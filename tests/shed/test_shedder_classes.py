"""Classes of requests at a load shedder: critical ones, those of busy workers, and classes of an app's own."""

from __future__ import annotations

import contextvars
import gc

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


def test_a_block_that_ends_in_another_context_hides_its_class_there(clock):
    """A framework may end a request in a copy of the context in which it began: no class is left in either."""
    shedder = LoadShedder(1, clock=clock)
    began = contextvars.copy_context()
    permit = began.run(shedder.permit("critical").__enter__)
    copied = began.run(contextvars.copy_context)
    assert (began.run(current_class), copied.run(current_class), current_class()) == ("critical", "critical", None)
    copied.run(permit.__exit__, None, None, None)
    assert (copied.run(current_class), current_class(), shedder.stats().in_flight) == (None, None, 0)


def test_a_lost_permit_comes_back_from_a_cycle(clock):
    """A permit that only refers to itself is found by the collector, as often as one is lost."""
    shedder = LoadShedder(1, clock=clock)
    for _ in range(3):
        permit = shedder.permit("critical")
        assert permit
        permit.itself = permit
        del permit
        gc.collect()
        assert shedder.stats().in_flight == 0
