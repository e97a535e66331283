"""`Limiter`: the small API."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Self

from headgate.call import Call, Cost, checked_key
from headgate.clock import SECOND
from headgate.engine import Decision, Gate, Permit
from headgate.engine.holding import Holding
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.guard import Guard, Key, Slot
from headgate.limiter.promises import Promise
from headgate.limiter.reservation import Reservation
from headgate.limiter.wait_queue import Ask, Depart, GiveBack, GiveUp, Look, Sleep, Step, Steps, Turn, checked_wait
from headgate.stores import Gate as AnyGate
from headgate.stores import Store
from headgate.stores.contract import Leased, LeasingStore
from headgate.waiting.sleep import sleep_until


class Limiter(BaseLimiter):
    """Allow or not, and when to come back.

    >>> limiter = Limiter("10/second; 1000/hour burst 50")
    >>> if not (decision := limiter.hit("user:42")):
    ...     wait = decision.retry_after
    """

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        super().bind(store)
        # The hot calls are the engine's own bound methods: no Python frame between the caller and the answer.
        self.hit = self._gate.hit  # type: ignore[method-assign]
        self.peek = self._gate.peek  # type: ignore[method-assign]
        self.take_up_to = self._gate.take_up_to  # type: ignore[method-assign]
        self._reserve = self._gate.reserve
        if isinstance(self._gate, Gate):
            hot = self._gate.wait_by(self._queue.by_key, self._acquire, self._queue.wake)
            self.acquire, self.permit = hot  # type: ignore[method-assign]
            self.release = self._gate.release  # type: ignore[method-assign]
        else:
            for name in ("acquire", "permit", "release"):
                self.__dict__.pop(name, None)

    def _open_gate(self, store: Store) -> AnyGate:
        if self.lease and isinstance(store, LeasingStore):
            return store.leased_gate(self.namespace, self.limits, self.on_error, self.lease)
        return super()._open_gate(store)

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses.

        `cost` may name the limits: `{"rpm": 1, "tpm": 500}`. `limit` chooses other numbers for this call (a plan):
        same algorithm, period and name, so the same state.
        """
        return self._gate.hit(key, cost, limit=limit)

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer. Writes nothing."""
        return self._gate.peek(key, cost, limit=limit)

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much. Refused when not even 1 fits."""
        return self._gate.take_up_to(key, n, limit=limit)

    def acquire(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and whoever comes when `max_waiting` wait already.
        """
        return self._acquire(key, cost, timeout, limit)

    def _acquire(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        queue = self._queue
        due = queue.due(timeout)
        if checked_key(key) in queue.by_key:
            return self._wait(key, cost, limit, queue.wait_turn(key, cost, due, _Waiter(cost)))
        wait = queue.longest if timeout is None else min(queue.longest, checked_wait(timeout))
        decision = self._reserve(key, cost, wait, limit)
        return self._wait(key, cost, limit, queue.finish(key, cost, due, decision, lambda: _Waiter(cost)))

    def _wait(self, key: str, cost: Cost, limit: Given | None, steps: Steps) -> Decision:
        """Do what the queue says, in this thread."""
        try:
            step = next(steps)
            while True:
                try:
                    done = self._do(key, cost, limit, step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            decision: Decision = end.value
            return decision

    def _do(self, key: str, cost: Cost, limit: Given | None, step: Step) -> Decision | Promise | bool | None:
        clock = self._queue.clock
        match step:
            case Ask(wait_us):
                return self._reserve(key, cost, wait_us, limit)
            case Look(units):
                return self._gate.peek(key, units or cost, limit=limit)
            case Sleep(at_us):
                sleep_until(clock, at_us)
            case Turn(_Waiter() as waiter, due_us):
                return waiter.turn.acquire(timeout=-1 if due_us is None else max(0, due_us - clock.now_us()) / SECOND)
            case GiveBack(decision):
                self._gate.refund(decision)
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
            self._gate.refund(freed.decision)

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0) -> Permit:
        """Spend, and hold what is in flight until the permit ends: `with limiter.permit("k"):` raises where refused.

        With a `timeout` it waits for that, first come, first served; None waits as long as it takes.
        """
        if timeout == 0 and checked_key(key) not in self._queue.by_key:
            return Permit(self._gate.hit(key, cost), self.release)
        return Permit(self._acquire(key, cost, timeout, None), self.release)

    def release(self, decision: Decision) -> None:
        """Give back what a decision has in flight, at most once; rates stay charged. A `Permit` does this itself."""
        self._gate.release(decision)
        if self._queue.by_key:
            self._queue.wake(decision)

    def holders(self, key: str) -> list[Holding]:
        """What is in flight of a key, the oldest first."""
        return self._gate.holders(key)

    def slot(self, key: str, cost: Cost = 1, timeout: float | None = None) -> Slot:
        """A context manager that acquires; raises `RateLimited` where that is refused."""
        return Slot(self, key, cost, timeout)

    def reserve(
        self, key: str, cost: Cost = 1, max_wait: float | None = None, *, limit: Given | None = None
    ) -> Reservation:
        """Charge now what may be used after a delay of at most `max_wait` seconds (default: an hour).

        Windows, logs and blocks cannot promise a delay: they reserve what fits now.
        """
        return Reservation(self, self._reserve(key, cost, self._promise(max_wait), limit))

    def decide(self, *calls: Call) -> Decision:
        """Several limits and subjects, one decision: every call is charged or none is."""
        return self._gate.decide(*calls)

    def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if charged now."""
        self._gate.refund(charged, n)
        if self._queue.by_key and not isinstance(charged, str):
            self._queue.wake(charged)

    def reset(self, key: str) -> None:
        """Make the key as new."""
        self._gate.reset(key)

    def guard(self, key: Key, cost: Cost = 1) -> Guard:
        """A decorator (the key may be made from the arguments) or a context manager that raises `RateLimited`."""
        return Guard(self, key, cost)

    def close(self) -> None:
        """Give back leases, and let go of a store that this limiter opened itself; as `with` does at its end."""
        if isinstance(self._gate, Leased):
            self._gate.close()
        if self._owned and hasattr(self._opened, "close"):
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Waiter:
    """A thread that waits."""

    __slots__ = ("cost", "turn")

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turn = threading.Lock()
        self.turn.acquire()

    def call(self) -> None:
        with suppress(RuntimeError):  # called already
            self.turn.release()
