"""Waiting for admission: first come, first served.

If every limit lends (the bucket family), a caller is charged at once and told when it may go: callers go in the order
of their charges, in all processes of the store. Windows and logs cannot promise a time: the callers of a key wait in a
queue of this process, and only the first of them asks the store again, at the retry time of its refusal. A limit in
flight has no retry time: the first caller asks when a permit of the key is released in this process, and at intervals,
because another process may have released one.

A generator yields the steps of a wait; the limiters run them, in a thread or in an event loop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.algorithms import NEVER, UNKNOWN, bucket
from headgate.call import Cost
from headgate.clock import Clock
from headgate.engine import LONGEST_WAIT, Decision
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.limiter.promises import Promise, Promises
from headgate.limiter.wait_steps import Ask, Depart, GiveBack, GiveUp, Look, Sleep, Steps, Turn, Waiter
from headgate.stores import Store
from headgate.waiting import checked_wait

DEFAULT_MAX_WAITING: Final = 10_000
NO_WAIT: Final = 0
A_MOMENT: Final = 10_000
"""The retry time, in microseconds, of a caller that would fit but may not pass the callers ahead."""
FIRST_LOOK: Final = 5_000
LAST_LOOK: Final = 100_000
"""How long, in microseconds, the first caller waits for a release before it asks again; the time doubles up to this."""


class WaitQueue:
    """The callers that wait for the keys of one limiter in this process."""

    def __init__(self, limits: tuple[Limit, ...], store: Store, max_waiting: int) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 0:
            raise InvalidCall(f"max_waiting must be a whole number of callers, from 0; got {max_waiting!r}")
        self.clock = store.clock
        self.waiting = 0
        self.promises = Promises(store.clock)
        self.longest = LONGEST_WAIT if max_waiting else NO_WAIT
        """The longest wait of a new caller: 0 while `max_waiting` callers wait."""
        self.by_key: dict[str, deque[Waiter]] = {}
        """The queues by key; used only if a limit cannot lend."""
        self.lends = all(map(lends, limits))
        self._asked: dict[str, int] = {}
        """The sum of the costs in each queue; costs by name count as 0."""
        self._most = max_waiting
        self._by_clock = store.decides_by_clock
        self._burst = min(limit.burst for limit in limits)
        self._lock = threading.Lock()
        after_fork(self.forget)

    def forget(self) -> None:
        """Forget all callers after a fork: they wait in the parent process."""
        self._lock = threading.Lock()
        self.promises.forget()
        self.by_key.clear()
        self._asked.clear()
        self._count(-self.waiting)

    def due(self, timeout: float | None) -> int | None:
        """Return the instant by which a caller must be admitted; None if there is no timeout."""
        return None if timeout is None else self.clock.now_us() + checked_wait(timeout)

    def finish(self, key: str, cost: Cost, due_us: int | None, first: Decision, waiter: Callable[[], Waiter]) -> Steps:
        """Return the steps that follow the first answer."""
        if first.allowed:
            if first.retry_us or key not in self.by_key:
                return self._depart(first)
            # An earlier caller was refused while this answer was under way: that caller goes first.
            return self.wait_turn(key, cost, due_us, waiter(), first)
        if first.never or self.waiting >= self._most or self._too_late(first, due_us):
            return _refused(first)
        return self.wait_turn(key, cost, due_us, waiter())

    def wait_turn(
        self, key: str, cost: Cost, due_us: int | None, waiter: Waiter, spent: Decision | None = None
    ) -> Steps:
        """Wait in the queue, and ask the store when it is the waiter's turn; `spent`, if any, is given back first."""
        if self.waiting >= self._most:
            if spent is not None:
                yield GiveBack(spent)
            return refusal_of(_decision((yield Look(0))))
        ahead = self._join(key, waiter)
        try:
            if spent is not None:
                yield GiveBack(spent)
            if ahead is not None:
                whole = max(cost, min(ahead + cost, self._burst)) if isinstance(cost, int) else 0
                refused = _decision((yield Look(whole)))
                if refused.never:  # their sum is above a plan's burst: no time is known
                    refused = _decision((yield Look(0)))
                if refused.never or self._too_late(refused, due_us) or not (yield Turn(waiter, due_us)):
                    return refusal_of(refused)
            look = FIRST_LOOK
            while True:
                decision = _decision((yield Ask(self._patience(due_us))))
                if decision.allowed:
                    break
                if decision.never or self._too_late(decision, due_us):
                    return decision
                pause = decision.retry_us
                if pause == UNKNOWN:
                    at = self.clock.now_us() + look
                    at = at if due_us is None else min(at, due_us)
                    if not (yield Turn(waiter, at)) and due_us is not None:
                        due_us -= max(0, at - self.clock.now_us())  # a manual clock did not move
                    look = min(2 * look, LAST_LOOK)
                    continue
                if self.lends and pause > LONGEST_WAIT:
                    pause -= LONGEST_WAIT  # from that instant on, the rest can be promised
                yield Sleep(self.clock.now_us() + pause)
        finally:
            self._leave(key, waiter)
        return (yield from self._depart(decision))

    def promise(self, decision: Decision) -> Promise:
        """Record the promise of a decision that is charged for later."""
        return self.promises.add(decision, ready_at(decision, self.clock, self._by_clock))

    def _depart(self, decision: Decision) -> Steps:
        """Wait until the decision may be used; give it back if the caller does not go."""
        if not decision.retry_us:
            return (yield from self._go(decision)) if self.waiting else decision
        promise = self.promise(decision)
        if self.waiting >= self._most:  # other callers came to wait meanwhile
            yield GiveUp(promise)
            return refusal_of(decision)
        self._count(1)
        try:
            kept = yield Depart(promise)
        finally:
            self._count(-1)
        assert isinstance(kept, Promise)  # noqa: S101 - the answer to Depart
        self.promises.left(kept)
        return kept.decision

    def _go(self, decision: Decision) -> Steps:
        """Go now, but behind callers that are due already: a busy event loop may be late."""
        try:
            yield Sleep(self.clock.now_us())
        except BaseException:
            yield GiveBack(decision)
            raise
        return decision

    def _too_late(self, refused: Decision, due_us: int | None) -> bool:
        if refused.allowed or due_us is None:
            return False
        if refused.unknown:
            return self.clock.now_us() >= due_us
        return refused.retry_us == NEVER or self.clock.now_us() + refused.retry_us > due_us

    def _patience(self, due_us: int | None) -> int:
        return LONGEST_WAIT if due_us is None else max(0, min(LONGEST_WAIT, due_us - self.clock.now_us()))

    def _join(self, key: str, waiter: Waiter) -> int | None:
        """Join the end of the queue; return the sum of the costs ahead, or None for the first caller."""
        with self._lock:
            self._add(1)  # under the same lock: a caller that sees the new count must queue behind this one
            queue = self.by_key.setdefault(key, deque())
            ahead = self._asked.get(key, 0) if queue else None
            queue.append(waiter)
            self._asked[key] = self._asked.get(key, 0) + _units(waiter)
            return ahead

    def _leave(self, key: str, waiter: Waiter) -> None:
        """Leave the queue; if the first caller leaves, call the next one."""
        with self._lock:
            self._add(-1)
            queue = self.by_key[key]
            was_head = queue[0] is waiter
            queue.remove(waiter)
            self._asked[key] -= _units(waiter)
            if not queue:
                del self.by_key[key], self._asked[key]
            elif was_head:
                queue[0].call()

    def wake(self, decision: Decision) -> None:
        """Call the first caller of each key of a decision that was given back: it may ask again."""
        for call in decision.calls:
            with self._lock:
                queue = self.by_key.get(call.key)
                if queue:
                    queue[0].call()

    def _count(self, more: int) -> None:
        with self._lock:
            self._add(more)

    def _add(self, more: int) -> None:
        self.waiting += more
        self.longest = LONGEST_WAIT if self.waiting < self._most else NO_WAIT


def _units(waiter: Waiter) -> int:
    return waiter.cost if isinstance(waiter.cost, int) else 0


def lends(limit: Limit) -> bool:
    """Return whether a limit can charge now for later use; a limit with a block cannot."""
    return limit.step.LENDS and not limit.block_us


def ready_at(decision: Decision, clock: Clock, by_clock: bool) -> int:
    """Return the instant from which a reservation may be used.

    If the store decides by this clock, the decision's marks give the instant, so a pause since then does not change the
    order. A server has another clock: its delay counts from the arrival of its answer.
    """
    if by_clock and decision.allowed and decision.retry_us and not decision.degraded:
        each = zip(decision.calls, decision.verdicts, strict=True)
        return max(
            bucket.usable_at(bucket.Params(*call.limit.params), verdict.mark, call.cost) for call, verdict in each
        )
    return clock.now_us() + (decision.retry_us if decision.allowed else 0)


def refusal_of(decision: Decision) -> Decision:
    """Return a refusal with the numbers of this decision, for a caller that would fit but may not pass those ahead."""
    if not decision.allowed:
        return decision
    calls = decision.calls
    answers: list[int] = []
    for call, verdict in zip(calls, decision.verdicts, strict=True):
        wait = UNKNOWN if call.limit.in_flight else max(verdict.retry_us, A_MOMENT)
        answers += (False, verdict.remaining, wait, wait if wait == UNKNOWN else max(verdict.reset_us, A_MOMENT), 0, 0)
    limits, keys, costs = zip(*((call.limit, call.key, call.cost) for call in calls), strict=True)
    return Decision(limits, keys, costs, answers, charged=False, degraded=decision.degraded)


def _decision(answer: Decision | Promise | bool | None) -> Decision:
    assert isinstance(answer, Decision)  # noqa: S101 - the answer to Ask and Look
    return answer


def _refused(decision: Decision) -> Steps:
    yield from ()
    return decision
