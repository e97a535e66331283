"""`Limiter`: limits for threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, Self

from headgate.call import Call, Cost, checked_key
from headgate.clock import SECOND
from headgate.engine import Decision, Permit
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.caller import Caller, order_of
from headgate.limiter.limited import Charge, CostOf, Key, Limited, check_key
from headgate.limiter.promises import Promise
from headgate.limiter.reservation import Reservation
from headgate.limiter.several import acquire_all
from headgate.limiter.streams import Chunk, largest_part, paced, parts_of
from headgate.steps import run
from headgate.stores import HOT_VERBS, BoundLimits, Gate, Store
from headgate.waiting import sleep_until, warn_if_in_loop


class Limiter(BaseLimiter[BoundLimits, Decision], Gate):
    """Admit or refuse requests, and tell when to retry.

    Examples:
        >>> limiter = Limiter("10/second; 1000/hour burst 50")
        >>> if not (decision := limiter.hit("user:42")):
        ...     wait = decision.retry_after
    """

    _HOT: ClassVar[tuple[str, ...]] = (*HOT_VERBS, "acquire", "permit")

    def _use(self, store: Store) -> None:
        super()._use(store)
        bound: Any = self._bound
        if hasattr(bound, "wait_by"):
            self._carry(bound.wait_by(self._queue.by_key, self._acquire, self._queue.wake))

    def acquire(
        self,
        key: str,
        cost: Cost = 1,
        timeout: float | None = None,
        *,
        limit: Given | None = None,
        priority: int = 0,
        fair_by: str | None = None,
        weight: float = 1,
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and a caller that comes when `max_waiting` callers wait already. With a
        `priority`, the highest goes first; with `fair_by`, callers share the limit by their `weight`.
        """
        return self._acquire(key, cost, timeout, limit, priority, fair_by, weight)

    def acquire_all(self, *calls: Call, timeout: float | None = None) -> Decision:
        """Wait like `acquire`, over several limits and keys at once, as `decide` does: all are charged or none is."""
        return run(acquire_all(self._queue, _Thread(self, "", {}, None).about(calls), timeout))

    def stream(self, key: str, chunks: Iterable[Chunk], *, limit: Given | None = None) -> Iterator[Chunk]:
        """Return the same chunks, each after its length was acquired: `limiter.stream(user, file)` paces bytes.

        A chunk above the burst waits for all of its parts. A caller that may not wait raises `RateLimited`.
        """
        most = largest_part(chunks, self.limits, limit)
        return paced(chunks, lambda size: [self.acquire(key, part, limit=limit) for part in parts_of(size, most)])

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0, *, limit: Given | None = None) -> Permit:
        """Charge the key, and hold the units in flight until the permit ends: `with limiter.permit("k"):`.

        It waits at most `timeout` seconds, first come, first served; None: no bound. `with` raises if refused.
        """
        if timeout == 0 and checked_key(key) not in self._queue.by_key:
            return Permit(self.hit(key, cost, limit=limit), self.release)
        return Permit(self._acquire(key, cost, timeout, limit), self.release)

    def reserve(
        self, key: str, cost: Cost = 1, max_wait: float | None = None, *, limit: Given | None = None
    ) -> Reservation:
        """Charge now a cost that may be used after a delay of at most `max_wait` seconds (default: an hour).

        Windows, logs and blocks cannot promise a delay: they reserve a cost that fits now.
        """
        return Reservation(self, self._count(self._reserve(key, cost, self._promise(max_wait), limit), False))

    def limited(self, key: Key, cost: CostOf = 1, *, timeout: float | None = 0, limit: Given | None = None) -> Limited:
        """Return a decorator: each call of the function charges the key, or raises `RateLimited` if refused.

        Key and cost may be functions of the arguments. With a `timeout`, a call waits at most that many seconds, as in
        `acquire`; None: no bound. Units in flight are held while the function runs.
        """
        return Limited(self, Charge(check_key(key, sys._getframe(1)), cost, timeout, limit))

    def close(self) -> None:
        """Give back leases, and close the store if this limiter opened it; `with` does this at its end."""
        if hasattr(self._bound, "close"):
            self._bound.close()
        if self._owned and hasattr(self._opened, "close"):
            self._opened.close()

    def _acquire(
        self,
        key: str,
        cost: Cost,
        timeout: float | None,
        limit: Given | None,
        priority: int = 0,
        fair_by: str | None = None,
        weight: float = 1,
    ) -> Decision:
        order = order_of(priority, fair_by, weight)
        return run(self._queue.acquire(_Thread(self, key, cost, limit, order), timeout))

    def _give_up(self, promise: Promise) -> None:
        for freed in self._queue.promises.free(promise):
            self._refund(freed.decision)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Thread(Caller):
    """A caller in a thread."""

    __slots__ = ("_turn",)

    def depart(self, promise: Promise) -> Promise:
        try:
            self.sleep_until(promise.ready_us)
        except BaseException:
            self.give_up(promise)
            raise
        return promise

    def sleep_until(self, at_us: int) -> None:
        clock = self._limiter.store.clock
        if at_us > clock.now_us():
            warn_if_in_loop()
        sleep_until(clock, at_us)

    def queue_up(self) -> None:
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait_for_turn(self, due_us: int | None) -> bool:
        warn_if_in_loop()
        now = self._limiter.store.clock.now_us()
        return self._turn.acquire(timeout=-1 if due_us is None else max(0, due_us - now) / SECOND)

    def call(self) -> None:
        with suppress(RuntimeError):  # the lock is open: the thread was called already
            self._turn.release()
