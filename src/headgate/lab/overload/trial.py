"""Clients, a shedder, a service behind it, and a record of each second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from headgate.clock import SECOND
from headgate.lab.overload.services import Service
from headgate.lab.overload.world import World
from headgate.permit import Outcome
from headgate.shed import LoadShedder


class Record:
    """Counts of each second, and the latency of each admitted request by the second in which it began."""

    def __init__(self) -> None:
        self.wanted: defaultdict[int, int] = defaultdict(int)
        """Calls that clients made; retries are not counted."""
        self.good: defaultdict[int, int] = defaultdict(int)
        """Calls that were answered in time, by the second of the answer."""
        self.latencies: defaultdict[int, list[int]] = defaultdict(list)


class Attempt:
    """One request of a client: it is served, refused, or waits first."""

    __slots__ = ("_call", "_front", "permit")

    def __init__(self, front: Front, call: Call) -> None:
        self._front, self._call = front, call
        self.permit = front.shedder.permit(call.request_class, tenant=call.tenant, timeout=front.timeout)

    def begin(self) -> None:
        """Be served or refused now, or wait."""
        front = self._front
        if front.timeout is None or front.shedder.ask(self.permit, self):
            self.wake()
        else:
            front.world.after(front.timeout * SECOND, self._give_up)

    def wake(self) -> None:
        """Go on: the permit was granted or refused."""
        if self.permit:
            self._front.in_service.add(self)
            self._front.service.serve(self._end)
        else:
            self._call.refused()

    def _give_up(self) -> None:
        if self.permit.state == "asked":
            self._front.shedder.give_up(self)
            self._call.refused()

    def _end(self, outcome: Outcome) -> None:
        self._front.in_service.discard(self)
        self.permit.release(outcome)
        self.note_latency()
        if outcome == "success":
            self._call.answered(self)

    def note_latency(self) -> None:
        """Record the latency of the service, up to now."""
        began = self.permit.began
        self._call.record.latencies[began // SECOND].append(self._front.world.us - began)


class Front:
    """A service behind a shedder."""

    def __init__(self, world: World, service: Service, shedder: LoadShedder, timeout: float | None = None) -> None:
        self.world, self.service, self.shedder, self.timeout = world, service, shedder, timeout
        self.in_service: set[Attempt] = set()

    def stop(self) -> None:
        """Record the requests that are still in service with the latency they have so far."""
        for attempt in list(self.in_service):
            attempt.note_latency()
            attempt.permit.release("ignored")


class Call:
    """One call of a client: an attempt, and retries at once when it is refused or takes longer than the timeout."""

    __slots__ = ("_attempt", "_began", "_front", "_left", "_over", "_timeout", "record", "request_class", "tenant")

    def __init__(
        self, front: Front, record: Record, timeout: int, retries: int = 0, over: Callable[[], None] | None = None
    ) -> None:
        self.record = record
        self.request_class, self.tenant = "sheddable_plus", ""
        self._front, self._timeout, self._left, self._over = front, timeout, retries, over
        self._attempt: Attempt | None = None
        self._began = front.world.us

    def begin(self) -> None:
        """Make the first attempt."""
        self.record.wanted[self._began // SECOND] += 1
        self._try()

    def _try(self) -> None:
        self._began = self._front.world.us
        self._attempt = attempt = Attempt(self._front, self)
        if self._left or self._over:
            self._front.world.after(self._timeout, self._late, attempt)
        attempt.begin()

    def answered(self, attempt: Attempt) -> None:
        """Note an answer."""
        world = self._front.world
        if attempt is self._attempt and world.us - self._began <= self._timeout:
            self.record.good[world.us // SECOND] += 1
            self._end()

    def refused(self) -> None:
        """Try again, or give up."""
        if self._left:
            self._left -= 1
            self._try()
        else:
            self._end()

    def _late(self, attempt: Attempt) -> None:
        if attempt is self._attempt:
            self.refused()

    def _end(self) -> None:
        self._attempt = None
        if self._over is not None:
            self._over()
