"""Waiting for a yes: first come, first served.

Where every limit lends (the bucket family), a caller is charged at once and told when it may go: whoever is charged
first goes first, in all processes of the store. Windows and logs cannot promise a time; there the callers of a key
wait in a queue of this process, and only its head asks, once, at the instant it was told to. For what is in flight
there is no such instant: its head asks when a permit of the key has come back in this process, and now and then, since
others may have given one back.

The steps are written once, as a generator of what to do next; the limiters do it by thread or by event loop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, Protocol

from headgate.algorithms import bucket
from headgate.algorithms.contract import NEVER, UNKNOWN
from headgate.call import Cost
from headgate.clock import SECOND, Clock
from headgate.engine import Decision
from headgate.engine.modes import LONGEST_WAIT
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.limiter.promises import Promise, Promises
from headgate.stores.contract import Store

DEFAULT_MAX_WAITING: Final = 10_000
NO_WAIT: Final = 0
A_MOMENT: Final = 10_000
"""When to come back, in microseconds, where only those ahead are in the way."""
FIRST_LOOK: Final = 5_000
LAST_LOOK: Final = 100_000
"""How long, in microseconds, the head of a queue lets pass before it asks by itself: less at first."""


class Ask(NamedTuple):
    """Reserve what fits within so many microseconds; the decision is sent back."""

    wait_us: int


class Look(NamedTuple):
    """What would a cost get now? The decision is sent back."""

    cost: int


class Sleep(NamedTuple):
    """Until this instant."""

    at_us: int


class Turn(NamedTuple):
    """Until it is this waiter's turn, or the instant; whether it is its turn is sent back."""

    waiter: Waiter
    due_us: int | None


class GiveBack(NamedTuple):
    """What was spent is not going to be used."""

    decision: Decision


class Depart(NamedTuple):
    """Wait until it is time; the promise that was kept is sent back. Whoever does not leave gives up its promise."""

    promise: Promise


class GiveUp(NamedTuple):
    """What was promised is not going to be used."""

    promise: Promise


Step = Ask | Look | Sleep | Turn | GiveBack | Depart | GiveUp
Steps = Generator[Step, "Decision | Promise | bool | None", Decision]


class Waiter(Protocol):
    """Somebody who waits."""

    cost: Cost

    def call(self) -> None:
        """It is your turn."""
        ...


class WaitQueue:
    """Those who wait for the keys of one limiter in this process."""

    def __init__(self, limits: tuple[Limit, ...], store: Store, max_waiting: int) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 0:
            raise InvalidCall(f"max_waiting must be a whole number of callers, from 0; got {max_waiting!r}")
        self.clock = store.clock
        self.waiting = 0
        self.promises = Promises(store.clock)
        self.longest = LONGEST_WAIT if max_waiting else NO_WAIT
        """What a caller may be made to wait: nothing, where nobody more may wait."""
        self.by_key: dict[str, deque[Waiter]] = {}
        """The lines, by key; only of what cannot lend."""
        self.lends = all(map(lends, limits))
        self._asked: dict[str, int] = {}
        """How much each queue asks for, as far as that is one number."""
        self._most = max_waiting
        self._by_clock = store.decides_by_clock
        self._burst = min(limit.burst for limit in limits)
        self._lock = threading.Lock()
        after_fork(self.forget)

    def forget(self) -> None:
        """After a fork: whoever waited still waits in the parent."""
        self._lock = threading.Lock()
        self.promises.forget()
        self.by_key.clear()
        self._asked.clear()
        self._count(-self.waiting)

    def due(self, timeout: float | None) -> int | None:
        """The instant by which a caller has to be on its way."""
        return None if timeout is None else self.clock.now_us() + checked_wait(timeout)

    def finish(self, key: str, cost: Cost, due_us: int | None, first: Decision, waiter: Callable[[], Waiter]) -> Steps:
        """What is left to do after the first answer, which was not simply yes."""
        if first.allowed:
            if first.retry_us or key not in self.by_key:
                return self._depart(first)
            # Somebody who asked before was refused while this was on its way: it goes first.
            return self.wait_turn(key, cost, due_us, waiter(), first)
        if first.never or self.waiting >= self._most or self._too_late(first, due_us):
            return _refused(first)
        return self.wait_turn(key, cost, due_us, waiter())

    def wait_turn(
        self, key: str, cost: Cost, due_us: int | None, waiter: Waiter, spent: Decision | None = None
    ) -> Steps:
        """Wait in the queue, and ask when it is one's turn; what was spent too early is given back."""
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
                if refused.never:  # together they ask for more than a plan's burst: when that will be is not known
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
                        due_us -= max(0, at - self.clock.now_us())  # of a clock that is moved by hand, and was not
                    look = min(2 * look, LAST_LOOK)
                    continue
                if self.lends and pause > LONGEST_WAIT:
                    pause -= LONGEST_WAIT  # from then on it can be promised
                yield Sleep(self.clock.now_us() + pause)
        finally:
            self._leave(key, waiter)
        return (yield from self._depart(decision))

    def promise(self, decision: Decision) -> Promise:
        """What was charged for later."""
        return self.promises.add(decision, ready_at(decision, self.clock, self._by_clock))

    def _depart(self, decision: Decision) -> Steps:
        """Go when it is time; whoever does not go gives back."""
        if not decision.retry_us:
            return (yield from self._go(decision)) if self.waiting else decision
        promise = self.promise(decision)
        if self.waiting >= self._most:  # others came to wait while this was asked
            yield GiveUp(promise)
            return refusal_of(decision)
        self._count(1)
        try:
            kept = yield Depart(promise)
        finally:
            self._count(-1)
        assert isinstance(kept, Promise)  # noqa: S101 - what Depart is answered with
        self.promises.left(kept)
        return kept.decision

    def _go(self, decision: Decision) -> Steps:
        """Go now, behind those who wait where these are late: an event loop may have stood still."""
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
        """Join the end of the queue: how much is asked ahead, None at its head."""
        with self._lock:
            self._add(1)  # in one step: whoever sees that somebody more waits comes behind it
            queue = self.by_key.setdefault(key, deque())
            ahead = self._asked.get(key, 0) if queue else None
            queue.append(waiter)
            self._asked[key] = self._asked.get(key, 0) + _units(waiter)
            return ahead

    def _leave(self, key: str, waiter: Waiter) -> None:
        """Go, or give up; the next one is called where it was the head that left."""
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
        """Permits have come back: who is first in the queue may ask again."""
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
    """Whether a limit can charge now what is to be used later: a block cannot."""
    return limit.step.LENDS and not limit.block_us


def ready_at(decision: Decision, clock: Clock, by_clock: bool) -> int:
    """The instant from which what was reserved may be used.

    By the store's own clock it is what the decision says, so no pause since then changes the order; a server's instants
    are counted from when its answer was heard.
    """
    if by_clock and decision.allowed and decision.retry_us and not decision.degraded:
        each = zip(decision.calls, decision.verdicts, strict=True)
        return max(
            bucket.usable_at(bucket.Params(*call.limit.params), verdict.mark, call.cost) for call, verdict in each
        )
    return clock.now_us() + (decision.retry_us if decision.allowed else 0)


def refusal_of(decision: Decision) -> Decision:
    """A no for somebody who would fit and may not pass those ahead: what it was told, without the yes."""
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
    assert isinstance(answer, Decision)  # noqa: S101 - what Ask and Look are answered with
    return answer


def checked_wait(seconds: float) -> int:
    """A time to wait in microseconds, or an error that shows it."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidCall(f"a time to wait must be a number of seconds from 0, or None; got {seconds!r}")
    return round(min(seconds, 1e9) * SECOND)


def _refused(decision: Decision) -> Steps:
    yield from ()
    return decision
