"""Load shedders in forked children: the requests in flight are the parent's."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from headgate.shed import LoadShedder
from headgate.shed.estimators.adaptive import Adaptive
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import get, plain
from tests.support.forks import in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_forked_child_starts_with_nothing_in_flight():
    """The child has the whole limit, and the mode of its parent; the parent has its requests as before."""
    shedder, observing = LoadShedder(1), LoadShedder(1, mode="observe")
    held = shedder.permit()

    def work() -> Any:
        before = shedder.stats().in_flight
        own = [shedder.permit(), shedder.permit()]
        return before, [bool(each) for each in own], [bool(observing.permit()) for _ in range(2)]

    assert in_child(work) == [0, [True, False], [True, True]]
    assert shedder.stats().in_flight == 1
    assert held.release()
    assert shedder.stats().in_flight == 0


@pytest.mark.parametrize("end", ["release", "block", "lost", "measured"])
def test_the_end_of_a_parents_permit_frees_no_place_in_the_child(end):
    """A child that ends what it inherited has as many in flight as before: its own."""
    shedder = LoadShedder(1)
    if end != "measured":
        shedder.permit().release()  # from here on, the estimator measures nothing for a while
    held = [shedder.permit()]

    def work() -> Any:
        own = shedder.permit()
        if end == "lost":
            held.clear()
            gc.collect()
        elif end == "block":
            with held[0]:
                pass
        else:
            held[0].release()
        seen = shedder.stats()
        return bool(own), seen.in_flight, seen.admitted, bool(shedder.permit()), own.release(), bool(shedder.permit())

    assert in_child(work) == [True, 1, 1, False, True, True]
    assert (shedder.stats().in_flight, shedder.permit().reason) == (1, "limit")
    held[0].release()
    assert shedder.stats().in_flight == 0


def test_a_child_measures_by_its_own_requests():
    """Requests that the parent has measured when it forks do not end in the child, which learns without them."""
    estimator = Adaptive()
    for _ in range(30):
        estimator.begin(0, 10)

    def work() -> float:
        for at in range(60):
            mark = estimator.begin(at * 1_000, 1)
            estimator.end(at * 1_000 + 5_000, mark, 5_000, "success")
        return estimator.base

    assert (estimator.base, in_child(work)) == (0.0, 5_000.0)


class Pause:
    """Stops a coroutine once, until it is sent something."""

    def __await__(self) -> Any:
        yield


def test_a_request_that_is_under_way_at_the_fork_frees_no_place_in_the_child():
    """A request without a permit may end in both processes; in the child it ends beside the child's own requests."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Pause()
        await plain(scope, receive, send)

    def work() -> Any:
        seen = [gate.shedder.stats().in_flight]
        own = get(gate)
        own.send(None)
        for request in (under_way, own):
            with pytest.raises(StopIteration):
                request.send(None)
            seen.append(gate.shedder.stats().in_flight)
        return seen

    gate: Any = RateLimitMiddleware(app, {"rules": [], "shed": {"limit": 2, "timeout": 0}})
    for _ in range(2):  # the first is measured, and has a permit
        under_way = get(gate)
        under_way.send(None)
        gate.shedder.estimator.idle_until = 1 << 62
        assert in_child(work) == [0, 1, 0]
        assert gate.shedder.stats().in_flight == 1
        with pytest.raises(StopIteration):
            under_way.send(None)
    assert gate.shedder.stats().in_flight == 0
