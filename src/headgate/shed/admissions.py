"""The state of a shedder: requests in flight, requests that wait, and counts. The shedder calls it under its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.clock import SECOND
from headgate.permit import Outcome
from headgate.shed.classes import Classes
from headgate.shed.estimators import Estimator
from headgate.shed.permit import ShedPermit
from headgate.shed.refusals import Reason, Refusals
from headgate.shed.waiters import Waiter
from headgate.shed.waiting_room import WaitingRoom


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

    def __init__(self, classes: Classes, estimator: Estimator) -> None:
        self.in_flight = 0
        self.latency = 0.0
        """A smoothed mean of the latency of served requests."""
        self.refusals = Refusals()
        self.ended = 0
        self.room: WaitingRoom[Waiter] = WaitingRoom(len(classes.order))
        self._classes, self._estimator = classes, estimator

    def has_room(self, rank: int) -> bool:
        """Return whether a request of this rank may be served now. Critical requests are not part of a dip."""
        estimator = self._estimator
        return self.in_flight < (estimator.limit if rank >= self._classes.critical else estimator.undipped)

    def grant(self, now: int, permit: ShedPermit, sampled: bool = True) -> None:
        """Let a request be served."""
        self.in_flight += 1
        permit.state = "held"
        permit.began = now
        permit.mark = self._estimator.begin(now, self.in_flight) if sampled else None

    def refuse(self, now: int, permit: ShedPermit, reason: Reason) -> None:
        """Refuse a request."""
        permit.state, permit.reason = "refused", reason
        permit.retry_after = self.count_refusal(now, permit, reason)

    def count_refusal(self, now: int, permit: ShedPermit, reason: Reason) -> int:
        """Count a refusal; return the seconds after which its caller may come back."""
        if reason in ("limit", "queue"):
            self._estimator.refuse(now)
        return self.refusals.refuse(now, self.ended + self.in_flight, permit.request_class, reason)

    def wait(self, now: int, waiter: Waiter) -> Waiter | None:
        """Let a request wait; return the one that is refused for it if all places are taken, perhaps the same."""
        permit = waiter.permit
        self.room.add(now, permit.rank, permit.tenant, permit.weight, waiter)
        dropped = self.room.drop(now) if self.room.size > self._estimator.limit else None
        if dropped is not None:
            self.refuse(now, dropped.permit, "queue")
        return dropped

    def give_up(self, now: int, waiter: Waiter) -> None:
        """Refuse a request that has waited long enough, unless its permit was granted or refused in the meantime."""
        permit = waiter.permit
        if permit.state == "asked":
            self.room.remove(permit.rank, permit.tenant, waiter)
            self.refuse(now, permit, "queue")

    def sample(self, now: int, permit: ShedPermit, outcome: Outcome) -> None:
        """Tell the estimator the latency of a request, once."""
        if permit.mark is not None:
            latency = now - permit.began
            if outcome == "success":
                self.latency += 0.1 * (latency - self.latency) if self.latency else latency
            self._estimator.end(now, permit.mark, latency, outcome)
            permit.mark = None

    def take_back(self, now: int, mark: int | None) -> None:
        """Take back a permit that was lost: only its mark is known."""
        self.ended += 1
        self.in_flight -= self.in_flight > 0
        if mark is not None:
            self._estimator.end(now, mark, 0, "ignored")

    def admit_waiting(self, now: int) -> list[Waiter]:
        """Grant permits to all requests that wait: the limit is not enforced any more."""
        woken: list[Waiter] = []
        while (waiter := self.room.take(now, len(self._classes.order))) is not None:
            self.grant(now, waiter.permit)
            woken.append(waiter)
        return woken

    def stats(self) -> Stats:
        """Return the numbers of this moment."""
        return Stats(
            self._estimator.undipped,
            self.in_flight,
            self.room.size,
            self._estimator.base / SECOND,
            self.latency / SECOND,
            self.ended + self.in_flight,
            dict(self.refusals.by_class),
        )

    def fill(self, now: int) -> list[Waiter]:
        """Grant the permits that are free to requests that wait; return these, to be woken."""
        woken: list[Waiter] = []
        while self.room.size:
            ranks = len(self._classes.order) if self.has_room(self._classes.critical) else self._classes.critical
            waiter = self.room.take(now, ranks) if self.has_room(0) else None
            if waiter is None:
                break
            self.grant(now, waiter.permit)
            woken.append(waiter)
        return woken
