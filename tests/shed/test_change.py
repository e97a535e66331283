"""Other settings for a load shedder at work, as a policy that is read again brings them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate import InvalidCall, LoadShedder, Overloaded
from headgate.permit import Outcome
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import asgi, plain


class Waiter:
    """A request that waits, in no thread."""

    def __init__(self, shedder: LoadShedder, request_class: str) -> None:
        self.permit = shedder.permit(request_class, timeout=10)
        self._shedder = shedder

    def ask(self) -> bool:
        """Ask for the permit; False if the request waits."""
        return self._shedder.ask(self.permit, self)

    def wake(self) -> None:
        """There is nothing to wake."""


class Noting:
    """An estimator of two places that notes which of its requests end, and how many it refuses."""

    def __init__(self) -> None:
        self.limit = self.undipped = 2
        self.base, self.dips, self.idle_until = 0.0, True, 0
        self.ended: list[int] = []
        self.refused = 0

    def begin(self, now: int, in_flight: int) -> int:
        """Mark by the number in flight."""
        return in_flight

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Note the mark."""
        self.ended.append(mark)

    def refuse(self, now: int) -> None:
        """Count the refusal."""
        self.refused += 1


def test_an_estimator_hears_of_the_requests_that_its_limit_refuses(clock):
    """Of those that find no place, and of those that wait in vain; not of a deadline that cannot be met."""
    estimator = Noting()
    estimator.base = 100_000.0
    shedder = LoadShedder(estimator, clock=clock)
    held = [shedder.permit("critical"), shedder.permit("critical")]
    assert (shedder.permit("critical").reason, estimator.refused) == ("limit", 1)
    with pytest.raises(Overloaded, match="queue"), shedder.permit("critical", timeout=1):
        pytest.fail("there was no permit left")
    assert estimator.refused == 2
    assert (shedder.permit("critical", deadline=0.05).reason, estimator.refused) == ("deadline", 2)
    assert all(held)


def test_another_limit_keeps_requests_in_flight_and_counts(clock):
    """Both estimators hear of the requests that they were told of, and of no others; the limit is another at once."""
    first, second = Noting(), Noting()
    shedder = LoadShedder(first, clock=clock)
    held = [shedder.permit("critical"), shedder.permit("critical")]
    assert shedder.permit("sheddable").reason == "limit"
    second.limit = second.undipped = 3
    shedder.change(limit=second)
    held.append(shedder.permit("critical"))
    assert (bool(held[2]), shedder.permit("critical").reason) == (True, "limit")
    for permit in held:
        permit.release()
    assert (first.ended, second.ended) == ([1, 2], [3])
    stats = shedder.stats()
    assert (stats.in_flight, stats.admitted) == (0, 3)
    assert stats.refused == {("sheddable", "limit"): 1, ("critical", "limit"): 1}


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_the_mode_stays(clock, mode):
    """A new estimator dips only while the limit is enforced, and a kill switch is not undone."""
    shedder, estimator = LoadShedder(1, mode=mode, clock=clock), Noting()
    shedder.change(limit=estimator)
    assert (shedder.mode, estimator.dips) == (mode, mode == "enforce")
    assert [bool(permit) for permit in [shedder.permit() for _ in range(3)]] == [True, True, mode != "enforce"]


def test_a_higher_limit_is_for_those_who_wait(clock):
    """They need not wait for the next request that ends."""
    shedder = LoadShedder(1, clock=clock)
    held, waits = shedder.permit(), Waiter(shedder, "critical")
    assert not waits.ask()
    shedder.change(limit=2)
    assert (waits.permit.state, shedder.stats().waiting, shedder.stats().in_flight) == ("held", 0, 2)
    assert held.release()
    assert waits.permit.release()


def test_requests_that_wait_follow_another_order(clock):
    """They keep their class; one whose class is gone has that of requests that name none, also if it waits later."""
    shedder = LoadShedder(4, clock=clock)
    held = [shedder.permit("critical") for _ in range(4)]
    waiting = [Waiter(shedder, name) for name in ("critical", "sheddable", "sheddable_plus", "critical_plus")]
    assert [waiter.ask() for waiter in waiting[:3]] == [False, False, False]
    shedder.change(classes=["sheddable", "critical", "batch"])
    assert (waiting[3].ask(), shedder.stats().waiting, shedder.stats().in_flight) == (False, 4, 4)
    order = []
    for permit in held:
        permit.release()
        order.append([waiter.permit.request_class for waiter in waiting if waiter.permit.state == "held"])
        for waiter in waiting:
            if waiter.permit.state == "held":
                waiting.remove(waiter)
    assert order == [["sheddable"], ["critical"], ["batch"], ["batch"]]
    with pytest.raises(InvalidCall, match="the classes are sheddable, critical, batch"):
        shedder.permit("critical_plus")
    assert shedder.permit().request_class == "batch"


def test_busy_workers_come_and_go(clock):
    """A worker shedder may be added to a shedder and taken from it; what was learned and counted stays."""
    shedder = LoadShedder(clock=clock)
    estimator = shedder.estimator
    shedder.permit().release()
    shedder.change(workers=[lambda: 1.0])
    for _ in range(300):
        clock.advance(1)
        shedder.permit("critical").release()
    assert shedder.permit("sheddable").reason == "workers"
    shedder.change(workers=())
    assert shedder.permit("sheddable").release()
    assert (shedder.estimator, shedder.stats().admitted) == (estimator, 302)


CHANGES: dict[str, dict[str, Any]] = {
    "classes": {"classes": {"critical": {"path": "/pay"}}},
    "order": {"order": ["paid", "free"]},
    "workers": {"workers": {"signals": ["busy"]}},
    "timeout": {"timeout": "2s"},
    "mode": {"mode": "observe"},
    "limit": {"limit": {"adaptive": {"initial": 5}}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_reload_keeps_counts_and_what_was_learned(tmp_path: Path, change: str):
    """Only another `limit` in the file is learned from the start; a shedder that was found once stays the app's."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"rules": [], "shed": {}}))
    gate: Any = RateLimitMiddleware(plain, file)
    assert asgi(gate).status == 200
    shedder = gate.shedder
    shedder.estimator.limit = shedder.estimator.undipped = 7
    held = shedder.permit()
    shedder.count_refusal(held, "limit")
    file.write_text(json.dumps({"rules": [], "shed": CHANGES[change]}))
    assert gate.reload() is True
    stats = gate.shedder.stats()
    assert (gate.shedder, shedder.mode) == (shedder, "observe" if change == "mode" else "enforce")
    assert (stats.limit, stats.in_flight, stats.admitted) == (5 if change == "limit" else 7, 1, 2)
    assert stats.refused == {("sheddable_plus", "limit"): 1}
    assert held.release()
    assert asgi(gate).status == 200
    assert (shedder.stats().in_flight, shedder.stats().admitted) == (0, 3)
    if change == "order":
        assert list(shedder.classes.order) == ["paid", "free"]


def test_a_kill_switch_survives_a_reload_with_another_limit(tmp_path: Path):
    """A mode that was set by hand stays until the file names another one, whatever else the file changes."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"rules": [], "shed": {"limit": 1}}))
    gate: Any = RateLimitMiddleware(plain, file)
    gate.shedder.mode = "off"
    file.write_text(json.dumps({"rules": [], "shed": {"limit": 2, "workers": {"signals": ["busy"]}}}))
    assert gate.reload() is True
    assert (gate.shedder.mode, gate.shedder.stats().limit) == ("off", 2)
