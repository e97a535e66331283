"""`Limiter`: limits for threads."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Self

from headgate.call import Cost, checked_key
from headgate.clock import SECOND
from headgate.engine import Decision, Permit
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.limited import Key, Limited
from headgate.limiter.promises import Promise
from headgate.limiter.reservation import Reservation
from headgate.limiter.wait_steps import Ask, Depart, GiveBack, GiveUp, Look, Sleep, Step, Steps, Turn
from headgate.steps import run
from headgate.stores import HOT_VERBS, BoundLimits, Gate, Store
from headgate.waiting import checked_wait, sleep_until


class Limiter(BaseLimiter[BoundLimits], Gate):
    """Admit or refuse requests, and tell when to retry.

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
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and a caller that comes when `max_waiting` callers wait already.
        """
        return self._acquire(key, cost, timeout, limit)

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
        return Reservation(self, self._reserve(key, cost, self._promise(max_wait), limit))

    def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back the charge of a decision, or `n` units of it, at most once; or `n` units of a key."""
        self._refund(charged, n)
        if self._queue.by_key and not isinstance(charged, str):
            self._queue.wake(charged)

    def release(self, decision: Decision) -> None:
        """Give back the units in flight of a decision, at most once; rates stay charged. A permit calls this itself."""
        self._end(decision)
        if self._queue.by_key:
            self._queue.wake(decision)

    def limited(self, key: Key, cost: Cost = 1, *, limit: Given | None = None) -> Limited:
        """Return a decorator: each call of the function charges the key, or raises `RateLimited` if refused.

        The key may be a function of the arguments. Units in flight are held while the function runs.
        """
        return Limited(self, key, cost, limit)

    def close(self) -> None:
        """Give back leases, and close the store if this limiter opened it; `with` does this at its end."""
        self._close_bound()
        if self._owned and hasattr(self._opened, "close"):
            self._opened.close()

    def _acquire(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        queue = self._queue
        due = queue.due(timeout)
        if checked_key(key) in queue.by_key:
            return self._wait(key, cost, limit, queue.wait_turn(key, cost, due, _Waiter(cost)))
        wait = queue.longest if timeout is None else min(queue.longest, checked_wait(timeout))
        decision = self._reserve(key, cost, wait, limit)
        return self._wait(key, cost, limit, queue.finish(key, cost, due, decision, lambda: _Waiter(cost)))

    def _wait(self, key: str, cost: Cost, limit: Given | None, steps: Steps) -> Decision:
        """Run the steps of the queue in this thread."""
        return run(steps, partial(self._do, key, cost, limit))

    def _do(self, key: str, cost: Cost, limit: Given | None, step: Step) -> Decision | Promise | bool | None:
        clock = self._queue.clock
        match step:
            case Ask(wait_us):
                return self._reserve(key, cost, wait_us, limit)
            case Look(units):
                return self.peek(key, units or cost, limit=limit)
            case Sleep(at_us):
                sleep_until(clock, at_us)
            case Turn(_Waiter() as waiter, due_us):
                return waiter.turn.acquire(timeout=-1 if due_us is None else max(0, due_us - clock.now_us()) / SECOND)
            case GiveBack(decision):
                self._refund(decision)
            case GiveUp(promise):
                self._give_up(promise)
            case Depart(promise):
                try:
                    sleep_until(clock, promise.ready_us)
                except BaseException:
                    self._give_up(promise)
                    raise
                return promise
        return None

    def _give_up(self, promise: Promise) -> None:
        promise.given_up = True
        for freed in self._queue.promises.free(promise):
            self._refund(freed.decision)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Waiter:
    """A waiting thread."""

    __slots__ = ("cost", "turn")

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turn = threading.Lock()
        self.turn.acquire()

    def call(self) -> None:
        with suppress(RuntimeError):  # the lock is open: the thread was called already
            self.turn.release()
