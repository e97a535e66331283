"""Clients: those that wait for their answers, and those that are too many to wait for each other."""

from __future__ import annotations

from headgate.clock import SECOND
from headgate.lab.overload.scenarios import Scenario, Stream
from headgate.lab.overload.trial import Call, Front, Record


class ClosedClient:
    """A client that waits for the answer to a call, or for its timeout, before it thinks and calls again."""

    def __init__(self, front: Front, record: Record, timeout: int, think: int) -> None:
        self._front, self._record, self._timeout, self._mean = front, record, timeout, think
        self._think()

    def _think(self) -> None:
        world = self._front.world
        world.after(world.exponential(self._mean), self._call)

    def _call(self) -> None:
        Call(self._front, self._record, self._timeout, over=self._think).begin()


class OpenClients:
    """Many clients that know nothing of each other: their calls come at random, as often as the load says."""

    def __init__(self, front: Front, record: Record, scenario: Scenario, stream: Stream) -> None:
        self._front, self._record, self._scenario, self._stream = front, record, scenario, stream
        start = 0
        for seconds, rate in scenario.load:
            if rate:
                front.world.after(start * SECOND, self._next, rate * stream.part, (start + seconds) * SECOND)
            start += seconds

    def _next(self, rate: float, end: int) -> None:
        world = self._front.world
        gap = world.exponential(SECOND / rate)
        if world.us + gap < end:
            world.after(gap, self._call, rate, end)

    def _call(self, rate: float, end: int) -> None:
        call = Call(self._front, self._record, self._scenario.timeout, self._scenario.retries)
        call.request_class, call.tenant = self._stream.request_class, self._stream.tenant
        call.begin()
        self._next(rate, end)
