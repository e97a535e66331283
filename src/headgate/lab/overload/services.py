"""Services to overload: a pool of workers, shared cores, and a dependency behind either.

A service is given a function to call at the end of each request. It does not know shedders or clients, and works on for
clients that have left, as servers do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headgate.clock import SECOND
from headgate.lab.overload.world import World
from headgate.permit import Outcome

Done = Callable[[Outcome], None]
Work = Callable[[World], float]
"""Draws the work of one request, in microseconds."""


class Service(Protocol):
    """Serves requests."""

    def serve(self, done: Done) -> None:
        """Serve a request, and call `done` when it ends."""
        ...


class Pool:
    """Workers, each busy with one request at a time; the others wait in order of arrival."""

    def __init__(self, world: World, workers: int, work: Work, thrash: float = 0.0) -> None:
        self.workers = workers
        self._world, self.work, self._thrash = world, work, thrash
        self._waiting: deque[Done] = deque()
        self._busy = 0

    def serve(self, done: Done) -> None:
        """Serve a request as soon as a worker is free."""
        self._waiting.append(done)
        self._start()

    def resize(self, workers: int) -> None:
        """Take workers away, or add some; requests in service are finished."""
        self.workers = workers
        self._start()

    def _start(self) -> None:
        while self._waiting and self._busy < self.workers:
            self._busy += 1
            slowdown = 1 + self._thrash * len(self._waiting)
            self._world.after(self.work(self._world) * slowdown, self._finish, self._waiting.popleft())

    def _finish(self, done: Done) -> None:
        self._busy -= 1
        self._start()
        done("success")


class Cores:
    """Cores that all requests in flight share: each is served at once, and all the slower the more there are."""

    def __init__(self, world: World, cores: int, work: Work) -> None:
        self._world, self._cores, self.work = world, cores, work
        self._served = 0.0
        """Work that a request in flight since the start would have had."""
        self._since = 0
        self._ends: list[tuple[float, int, Done]] = []
        self._serial = 0
        self._change = 0

    def serve(self, done: Done) -> None:
        """Serve a request beside the others."""
        self._advance()
        self._serial += 1
        heapq.heappush(self._ends, (self._served + self.work(self._world), self._serial, done))
        self._plan()

    def _speed(self) -> float:
        return min(1.0, self._cores / len(self._ends)) if self._ends else 1.0

    def _advance(self) -> None:
        self._served += (self._world.us - self._since) * self._speed()
        self._since = self._world.us

    def _plan(self) -> None:
        """Foresee the next end; a request that comes before it makes a new plan."""
        self._change += 1
        if self._ends:
            wait = (self._ends[0][0] - self._served) / self._speed()
            self._world.after(max(0.0, wait) + 1, self._finish, self._change)

    def _finish(self, change: int) -> None:
        if change != self._change:
            return
        self._advance()
        ended: list[Done] = []
        while self._ends and self._ends[0][0] <= self._served:
            ended.append(heapq.heappop(self._ends)[2])
        self._plan()
        for done in ended:
            done("success")


class Dependency:
    """A service, and then a wait for another service that holds no worker; a request waits there until `patience`."""

    def __init__(self, world: World, service: Service, work: Work, patience: int = SECOND) -> None:
        self.work = work
        """Draws the time of an answer; a function that a scenario may replace while requests come."""
        self._world, self._service, self._patience = world, service, patience

    def serve(self, done: Done) -> None:
        """Serve a request, then ask the dependency."""
        self._service.serve(lambda _: self._ask(done))

    def _ask(self, done: Done) -> None:
        wait = self.work(self._world)
        self._world.after(min(wait, self._patience), done, "success" if wait <= self._patience else "dropped")
