"""`LoadShedder`: how many requests a process serves at once, and which of them when there are more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from sys import modules
from typing import TYPE_CHECKING, Literal, get_args

from headgate.clock import SECOND, Clock
from headgate.engine import Places
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.permit import Outcome
from headgate.shed.admissions import Admissions, Stats
from headgate.shed.classes import ORDER, Classes
from headgate.shed.estimators import Estimator, estimator_of
from headgate.shed.loop_delay import BOUND, LoopDelay
from headgate.shed.permit import ShedPermit, check_tenant
from headgate.shed.refusals import Reason
from headgate.shed.signals import Signal
from headgate.shed.waiters import LoopWaiter, SteadyClock, ThreadWaiter, Waiter, wake_all
from headgate.shed.workers import Workers
from headgate.wording import log_of, shown

if TYPE_CHECKING:
    from headgate.waiting.timers import Timers

Mode = Literal["enforce", "observe", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)
WARN = 60 * SECOND
"""The time between two warnings of lost permits."""


class LoadShedder:
    """Admits requests while the service has room, and chooses which to refuse when it has not.

    `limit` is `"adaptive"`, which finds the limit; a number; `"aimd"`, `"vegas"` or `"gradient2"`; or an estimator.
    `classes` are in the order of their importance. `workers` are the signals of a worker shedder; without them there is
    none.
    """

    def __init__(
        self,
        limit: int | str | Estimator = "adaptive",
        *,
        classes: Sequence[str] = ORDER,
        workers: Sequence[Signal] = (),
        mode: Mode = "enforce",
        clock: Clock | None = None,
    ) -> None:
        self.classes = Classes(classes)
        self.abandoned: deque[int | None] = deque()
        """The marks of permits that were lost: a collector may find them at any time, even under the lock."""
        self._clock = clock or SteadyClock()
        now_ns = None if clock is None else lambda: clock.now_us() * 1_000
        self._places = Places(estimator_of(limit), now_ns)
        self._critical = self.classes.critical
        self._ranks: dict[str | None, int] = {None: self.classes.default_rank}
        self._ranks.update(self.classes.ranks)
        self._loops = LoopDelay()
        self._workers = Workers(workers, self.classes) if workers else None
        self._timers: Timers | None = None
        self._next_warning = 0
        self._begin()
        self.mode = mode
        after_fork(self._begin)

    def _begin(self) -> None:
        """Start with nothing in flight; in a forked child too, since the requests in flight are its parent's."""
        self._lock = threading.Lock()
        self._places.clear()
        self._state = Admissions(self.classes, self._places)

    @property
    def estimator(self) -> Estimator:
        """The estimator, which finds the limit."""
        estimator: Estimator = self._places.estimator
        return estimator

    @estimator.setter
    def estimator(self, estimator: Estimator) -> None:
        self._places.estimator = estimator

    @property
    def mode(self) -> Mode:
        """`enforce`; `observe`, which admits all requests and counts those it would refuse; `off`. May be set."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in MODES:
            raise InvalidCall(f"unknown mode {shown(mode)}: the modes are {', '.join(MODES)}")
        self._mode: Mode = mode
        self.estimator.dips = mode == "enforce"
        self._places.plain = mode == "enforce" and self._workers is None
        if mode != "enforce":
            with self._lock:
                woken = self._state.admit_waiting(self.now())
            wake_all(woken)

    def permit(
        self,
        request_class: str | None = None,
        *,
        tenant: str = "",
        weight: float = 1.0,
        timeout: float | None = None,
        deadline: float | None = None,
        at_once: bool = False,
    ) -> ShedPermit:
        """Ask whether a request may be served.

        Without a `timeout` the permit is true or false at once. With one, `with` or `async with` waits for that time at
        most, and raises `Overloaded` if it is refused. A request that cannot be served in the seconds of `deadline` is
        refused. Waiting tenants share by their weights. `at_once` grants a free permit also with a timeout.
        """
        if tenant != "" or weight != 1.0:  # also while none waits: a mistake must not wait for an overload
            check_tenant(tenant, weight)
        permit, places = ShedPermit(), self._places
        permit.shedder = self
        try:
            permit.rank = rank = self._ranks[request_class]
        except (KeyError, TypeError):
            raise self.classes.unknown(request_class) from None
        permit.began = now = places.now()
        delay = self._loops.of_request(now) if "asyncio" in modules else 0
        late = delay > BOUND and self._is_late(now, delay, rank)
        if places.plain and (timeout is None or at_once) and deadline is None:
            if late:
                return self._refuse_late(now, permit)
            estimator = places.estimator
            if in_flight := places.take(estimator.limit if rank >= self._critical else estimator.undipped):
                permit.state = "held"
                if now >= estimator.idle_until:
                    with self._lock:
                        permit.mark = estimator.begin(now, in_flight)
                return permit
        permit.describe(tenant, weight, timeout, deadline)
        permit.loop_delay, permit.late = delay, late
        return self._ask_now(permit) if timeout is None or at_once else permit

    def _ask_now(self, permit: ShedPermit) -> ShedPermit:
        """Grant or refuse a permit whose caller has not waited yet; one that may wait stays as it is."""
        self.ask(permit, None)
        if permit.state != "held":
            self._loops.uncount()
        return permit

    def _refuse_late(self, now: int, permit: ShedPermit) -> ShedPermit:
        """Refuse a request that sat in its loop too long, in few steps: there are many while a loop is behind."""
        with self._lock:
            self._state.refuse(now, permit, "loop")
        self._loops.uncount()
        return permit

    def _is_late(self, now: int, delay: int, rank: int) -> bool:
        """Return whether a request sat in its event loop too long. One of the highest class never does."""
        late = self._loops.is_late(now, delay, 1 << len(self.classes.order) - 1 - rank)
        return late and rank > 0

    def now(self) -> int:
        """Return the time of the shedder's clock, in microseconds."""
        return self._places.now()

    def count_refusal(self, permit: ShedPermit, reason: Reason) -> int:
        """Count a refusal that another part decided on; return the seconds after which its caller may come back."""
        with self._lock:
            return self._state.count_refusal(self.now(), permit, reason)

    def stats(self) -> Stats:
        """Return the numbers of this moment."""
        with self._lock:
            if self.abandoned:
                self._take_back_abandoned(self.now())
            return self._state.stats()

    def note_queue(self, seconds: float) -> None:
        """Tell how long a request waited before it reached this process, for the signal `queue`."""
        if self._workers is not None:
            self._workers.queue = max(self._workers.queue, round(seconds * SECOND))

    def end(self, permit: ShedPermit, outcome: Outcome) -> bool:
        """Take a permit back, and let waiting requests have it. False if it had ended already."""
        places = self._places
        with self._lock:
            ended = permit.state == "held"
            if ended:
                permit.state, permit.outcome = "ended", outcome
                places.give(True)
                if permit.mark is not None:
                    self._state.sample(places.now(), permit, outcome)
        if places.waiting:
            self.fill()
        return ended

    def fill(self) -> None:
        """Let waiting requests have the places that are free."""
        with self._lock:
            woken = self._state.fill(self.now())
        wake_all(woken)

    def sample(self, permit: ShedPermit, outcome: Outcome) -> None:
        """Tell the estimator the latency of a request that is still in flight."""
        now = self.now()
        with self._lock:
            self._state.sample(now, permit, outcome)
        if self._places.waiting:
            self.fill()

    def wait(self, permit: ShedPermit) -> None:
        """Wait in this thread until the permit is granted or refused."""
        waiter = ThreadWaiter(permit)
        if not self.ask(permit, waiter):
            try:
                waiter.wait(self._clock, self._latest(permit))
            finally:  # also when the thread is interrupted
                self.give_up(waiter)

    async def wait_async(self, permit: ShedPermit) -> None:
        """Wait in this event loop until the permit is granted or refused."""
        waiter = LoopWaiter(permit)
        if self.ask(permit, waiter):
            return
        if self._timers is None:
            from headgate.waiting.timers import Timers

            self._timers = Timers(self._clock)
        try:
            await self._timers.here().wait_for(waiter.woken, self._latest(permit))
        except BaseException:  # the caller was cancelled: its request never begins
            self.give_up(waiter)
            self.end(permit, "ignored")
            raise
        self.give_up(waiter)

    def ask(self, permit: ShedPermit, waiter: Waiter | None) -> bool:
        """Grant or refuse a permit, or let its request wait. False if it waits, or will have to."""
        now = self.now()
        reason = None if self._mode == "off" or permit.examined else self._reason(now, permit)
        permit.examined = True
        woken: list[Waiter] = []
        with self._lock:
            state, mode = self._state, self._mode  # read here: `off` has let all go on that wait, and this is one more
            if self.abandoned:
                self._take_back_abandoned(now)
            if mode == "off":
                state.grant(now, permit, sampled=False)
            elif reason is None and state.grant(now, permit, state.limit_of(permit.rank)):
                pass
            elif mode == "observe":
                state.count_refusal(now, permit, reason or "limit")
                state.grant(now, permit)
            elif reason is None and waiter is not None:
                woken = state.wait(now, waiter)
            elif reason is not None or permit.due is None:
                state.refuse(now, permit, reason or "limit")
        wake_all(woken)
        return permit.state != "asked"

    def _reason(self, now: int, permit: ShedPermit) -> Reason | None:
        """Return why to refuse a request even if a permit is free."""
        height = len(self.classes.order) - 1 - permit.rank
        if permit.late:
            return "loop"
        if self._workers is not None:
            self._workers.look(now, permit.loop_delay, self._places.in_flight / self.estimator.undipped)
            if permit.rank >= self._critical and self._workers.sheds(height):
                return "workers"
        if permit.deadline is not None and permit.deadline - now <= self.estimator.base:
            return "deadline"
        return None

    def _latest(self, permit: ShedPermit) -> int:
        """Return the instant until which a request waits: its deadline leaves time to serve it."""
        due = permit.due or 0
        return due if permit.deadline is None else min(due, permit.deadline - int(self.estimator.base))

    def give_up(self, waiter: Waiter) -> None:
        """Refuse a request that has waited long enough, unless its permit was granted or refused in the meantime."""
        with self._lock:
            self._state.give_up(self.now(), waiter)

    def _take_back_abandoned(self, now: int) -> None:
        """Take back permits that nothing refers to any more: their callers forgot to release them."""
        lost = [self.abandoned.popleft() for _ in range(len(self.abandoned))]
        for mark in lost:
            self._state.take_back(now, mark)
        if now >= self._next_warning:  # not for each: a caller that forgets one forgets thousands
            self._next_warning = now + WARN
            log_of(__name__).warning(
                "permits of a load shedder were lost without a release (%d): use `with`", len(lost)
            )
