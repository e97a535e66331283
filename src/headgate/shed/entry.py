"""The entry of requests that need no permit: a free place is taken, and given back.

A service that is not busy does not measure each request. A request that is not measured, and that need not wait, is a
number in flight and nothing more, so a web server with short responses hardly notices that it is protected.
"""

from __future__ import annotations

from contextvars import Token
from typing import TYPE_CHECKING

from headgate.shed.context import request_class
from headgate.shed.loop_delay import BOUND
from headgate.shed.waiters import wake_all

if TYPE_CHECKING:
    from headgate.shed.shedder import LoadShedder


class Entry:
    """The entry of requests of one class."""

    __slots__ = ("_critical", "_name", "_shedder")

    def __init__(self, shedder: LoadShedder, name: str) -> None:
        self._shedder, self._name = shedder, name
        self._critical = shedder.classes.ranks[name] < shedder.classes.critical

    def enter(self) -> Token[str | None] | None:
        """Take a free place, and show the class to the code that runs from here on. None if it takes a permit."""
        shedder = self._shedder
        now = shedder._now_ns() // 1_000
        estimator = shedder.estimator
        if now >= estimator.idle_until or not shedder._plain:
            return None
        if shedder._loops.of_request(now) <= BOUND:
            with shedder._lock:
                state = shedder._state
                if state.in_flight < (estimator.undipped if self._critical else estimator.limit):
                    state.in_flight += 1
                    return request_class.set(self._name)
        shedder._loops.uncount()  # the permit counts the request
        return None

    def leave(self, token: Token[str | None], served: bool = True) -> None:
        """Give the place back, for a request that goes on with a permit in its place if it was not served yet."""
        shedder = self._shedder
        woken = None
        with shedder._lock:
            state = shedder._state
            state.ended += served
            if state.in_flight:  # a forked child starts from none
                state.in_flight -= 1
            if state.room.size:
                woken = state.fill(shedder._now_ns() // 1_000)
        if woken:
            wake_all(woken)
        try:  # noqa: SIM105 - `suppress` would cost as much as the rest
            request_class.reset(token)
        except ValueError:  # in another context, which never saw the class
            pass
