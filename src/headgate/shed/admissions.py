"""The state of a shedder: requests in flight, requests that wait, and counts. The shedder calls it under its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.clock import SECOND
from headgate.engine import Entry, Places
from headgate.permit import Outcome
from headgate.shed.classes import Classes
from headgate.shed.estimators import Estimator
from headgate.shed.permit import ShedPermit
from headgate.shed.refusals import Reason, Refusals
from headgate.shed.waiters import Waiter
from headgate.shed.waiting_room import WaitingRoom
from headgate.wording import log_of

ANY = 1 << 62
"""More than can be in flight."""
WARN = 60 * SECOND
"""The time between two warnings of lost permits."""


@dataclass(frozen=True, slots=True)
class Stats:
    """A shedder at one moment."""

    limit: int
    """Requests that may be in flight."""
    in_flight: int
    waiting: int
    base_latency: float
    """Seconds that a request takes when none waits, as the estimator knows it; 0 while it does not."""
    latency: float
    """Seconds that requests take now, smoothed."""
    admitted: int
    refused: Mapping[tuple[str, Reason], int]
    """Refusals by class and reason; in `observe`, the requests that would have been refused."""


class Admissions:
    """Grants permits while fewer than the limit are held, and lets requests wait in as many places as the limit."""

    def __init__(self, classes: Classes, entries: Mapping[str | None, Entry], places: Places) -> None:
        self.places = places
        self.latency = 0.0
        """A smoothed mean of the latency of served requests."""
        self.refusals = Refusals()
        self.room: WaitingRoom[Waiter] = WaitingRoom(len(classes.order))
        self._classes, self._entries = classes, entries
        self._next_warning = 0

    @property
    def _estimator(self) -> Estimator:
        estimator: Estimator = self.places.estimator
        return estimator

    def limit_of(self, rank: int) -> int:
        """Return how many may be in flight for a request of this rank. Critical requests are not part of a dip."""
        estimator = self._estimator
        return estimator.limit if rank >= self._classes.critical else estimator.undipped

    def grant(self, now: int, permit: ShedPermit, limit: int = ANY, sampled: bool = True) -> bool:
        """Let a request be served if fewer than the limit are in flight."""
        in_flight = self.places.take_first(limit)
        if in_flight:
            permit.state = "held"
            permit.began = now
            if sampled:
                self.measure(permit, in_flight)
        return in_flight > 0

    def measure(self, permit: ShedPermit, in_flight: int) -> None:
        """Tell the estimator of a request that begins."""
        estimator = self._estimator
        permit.mark = estimator, estimator.begin(permit.began, in_flight)

    def refuse(self, now: int, permit: ShedPermit, reason: Reason) -> None:
        """Refuse a request."""
        permit.state, permit.reason = "refused", reason
        permit.retry_after = self.count_refusal(now, permit, reason)

    def count_refusal(self, now: int, permit: ShedPermit, reason: Reason) -> int:
        """Count a refusal; return the seconds after which its caller may come back."""
        if reason in ("limit", "queue"):
            self._estimator.refuse(now)
        return self.refusals.refuse(now, self._admitted, permit.request_class, reason)

    def wait(self, now: int, waiter: Waiter) -> list[Waiter]:
        """Let a request wait; return those that need not wait any more, perhaps the same.

        One is refused if all places to wait are taken. A place in flight that became free just now, when no
        request was known to wait, is granted.
        """
        self._let_wait(now, waiter)
        dropped = self.room.drop(now) if self.room.size > self._estimator.limit else None
        if dropped is not None:
            self.refuse(now, dropped.permit, "queue")
        self.places.wait(self.room.size)
        return self.fill(now) if dropped is None else [dropped, *self.fill(now)]

    def _let_wait(self, now: int, waiter: Waiter) -> None:
        permit = waiter.permit
        permit.entry = self._entries.get(permit.request_class) or self._entries[None]  # the order may have changed
        self.room.add(now, permit.rank, permit.tenant, permit.weight, waiter)

    def reorder(self, now: int, classes: Classes, entries: Mapping[str | None, Entry]) -> None:
        """Let the requests that wait go on to wait, by another order of classes."""
        room, ranks = self.room, len(self._classes.order)
        self._classes, self._entries, self.room = classes, entries, WaitingRoom(len(classes.order))
        while (waiter := room.take(now, ranks)) is not None:
            self._let_wait(now, waiter)

    def give_up(self, now: int, waiter: Waiter) -> None:
        """Refuse a request that has waited long enough, unless its permit was granted or refused in the meantime."""
        permit = waiter.permit
        if permit.state == "asked":
            self.room.remove(now, permit.rank, permit.tenant, waiter)
            self.places.wait(self.room.size)
            self.refuse(now, permit, "queue")

    def sample(self, now: int, permit: ShedPermit, outcome: Outcome) -> None:
        """Tell the estimator the latency of a request, once."""
        if permit.mark is not None:
            estimator, mark = permit.mark
            latency = now - permit.began
            if outcome == "success":
                self.latency += 0.1 * (latency - self.latency) if self.latency else latency
            estimator.end(now, mark, latency, outcome)
            permit.mark = None

    def take_back_lost(self, now: int) -> list[Waiter]:
        """Take back permits that nothing refers to any more; requests that wait get their places."""
        abandoned = self.places.abandoned
        lost = [abandoned.popleft() for _ in range(len(abandoned))]
        for mark in lost:  # nothing else is known of them
            self.places.give(True)
            if mark is not None:
                mark[0].end(now, mark[1], 0, "ignored")
        if now >= self._next_warning:  # not for each: a caller that forgets one forgets thousands
            self._next_warning = now + WARN
            log_of(__name__).warning(
                "permits of a load shedder were lost without a release (%d): use `with`", len(lost)
            )
        return self.fill(now)

    def admit_waiting(self, now: int) -> list[Waiter]:
        """Grant permits to all requests that wait: the limit is not enforced any more."""
        woken: list[Waiter] = []
        while (waiter := self.room.take(now, len(self._classes.order))) is not None:
            self.grant(now, waiter.permit)
            woken.append(waiter)
        self.places.wait(0)
        return woken

    @property
    def _admitted(self) -> int:
        return self.places.ended + self.places.in_flight

    def stats(self) -> Stats:
        """Return the numbers of this moment."""
        return Stats(
            self._estimator.undipped,
            self.places.in_flight,
            self.room.size,
            self._estimator.base / SECOND,
            self.latency / SECOND,
            self._admitted,
            dict(self.refusals.by_class),
        )

    def fill(self, now: int) -> list[Waiter]:
        """Grant the permits that are free to requests that wait; return these, to be woken."""
        woken: list[Waiter] = []
        classes, places = self._classes, self.places
        while self.room.size and places.in_flight < self.limit_of(0):
            all_ranks = places.in_flight < self.limit_of(classes.critical)
            waiter = self.room.take(now, len(classes.order) if all_ranks else classes.critical)
            if waiter is None:
                break
            self.grant(now, waiter.permit)
            woken.append(waiter)
        places.wait(self.room.size)
        return woken
