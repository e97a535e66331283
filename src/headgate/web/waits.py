"""The waits of a request before the app is called: until an instant, and for a permit of the load shedder."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headgate.clock import Clock
from headgate.shed import ShedPermit
from headgate.steps import Deferred
from headgate.waiting import sleep_until
from headgate.waiting.timers import Timers


class Pause(Deferred):
    """A wait until an instant."""

    def __init__(self, timers: Timers, clock: Clock, until_us: int) -> None:
        self._timers, self._clock, self._until_us = timers, clock, until_us

    def now(self) -> None:
        """Sleep in this thread."""
        sleep_until(self._clock, self._until_us)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._timers.here().wait_until(self._until_us).__await__()


class PermitWait(Deferred):
    """The wait of a request for its permit."""

    def __init__(self, permit: ShedPermit) -> None:
        self._permit = permit

    def now(self) -> None:
        """Wait in this thread."""
        self._permit.shedder.wait(self._permit)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._permit.shedder.wait_async(self._permit).__await__()
