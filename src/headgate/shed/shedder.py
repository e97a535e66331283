"""`LoadShedder`: how many requests a process serves at once, and which of them when there are more."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from sys import modules
from typing import TYPE_CHECKING, Literal, get_args

from headgate.clock import SECOND, Clock
from headgate.engine import Entry, Places
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.permit import Outcome
from headgate.shed.admissions import Admissions, Stats
from headgate.shed.classes import ORDER, Classes
from headgate.shed.context import request_class as class_shown
from headgate.shed.estimators import Estimator, estimator_of
from headgate.shed.loop_delay import BOUND, LoopDelay
from headgate.shed.permit import ShedPermit, check_tenant
from headgate.shed.refusals import Reason
from headgate.shed.signals import Signal
from headgate.shed.waiters import LoopWaiter, SteadyClock, ThreadWaiter, Waiter, wake_all
from headgate.shed.workers import Workers
from headgate.wording import explained, shown

if TYPE_CHECKING:
    from headgate.waiting.timers import Timers

Mode = Literal["enforce", "observe", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)


class LoadShedder:
    """Admits requests while the service has room, and chooses which to refuse when it has not.

    `limit` is `"adaptive"`, which finds the limit; a number; `"aimd"`, `"vegas"` or `"gradient2"`; or an estimator.
    `classes` are in the order of their importance. `workers` are the signals of a worker shedder; without them there is
    none.
    """

    @explained
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
        self._clock = clock or SteadyClock()
        self._loops = LoopDelay()
        self._workers = Workers(workers, self.classes) if workers else None
        self._timers: Timers | None = None
        self._begin(Places(estimator_of(limit), None if clock is None else lambda: clock.now_us() * 1_000))
        self.mode = mode
        after_fork(self._begin_in_child)

    def _begin(self, places: Places) -> None:
        """Start with nothing in flight."""
        self._lock = threading.RLock()  # a signal handler that reads a policy may interrupt the thread that holds it
        self._places = places
        self.entries = self._entries_of(self.classes)
        """The entries of requests by class; that of None is for requests that name none."""
        self._state = Admissions(self.classes, self.entries, places)

    def _entries_of(self, classes: Classes) -> dict[str | None, Entry]:
        entries: dict[str | None, Entry] = {}
        for rank, name in enumerate(classes.order):
            ranks, critical = (rank, len(classes.order) - 1 - rank), rank < classes.critical
            entries[name] = Entry(self._places, name, ranks, critical, class_shown, self, self._loops)
        return {None: entries[classes.order[classes.default_rank]], **entries}

    def _begin_in_child(self) -> None:
        """Start with other places: the requests in flight are the parent's, and give theirs back where they were."""
        before = self._places
        self._begin(Places(before.estimator, before.now_ns))
        self._places.plain = before.plain

    def change(
        self,
        *,
        limit: int | str | Estimator | None = None,
        classes: Sequence[str] | None = None,
        workers: Sequence[Signal] | None = None,
    ) -> None:
        """Go on with other settings; one that is None stays. Requests in flight stay, and so do all counts.

        Another `limit` is learned from the start. A request that waits keeps its class if the new order has it too.
        """
        if limit is not None:
            self._places.estimator = estimator_of(limit)
        if classes is not None:
            self.classes = Classes(classes)
            with self._lock:
                self.entries = self._entries_of(self.classes)
                self._state.reorder(self.now(), self.classes, self.entries)
        if workers is not None:
            self._workers = Workers(workers, self.classes) if workers else None
        self.mode = self._mode  # also for the new estimator
        if self._places.waiting:
            self.fill()

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
        try:
            entry = self.entries[request_class]
        except (KeyError, TypeError):
            raise self.classes.unknown(request_class) from None
        permit, at_once = ShedPermit(entry), at_once or timeout is None
        plain = at_once and deadline is None
        if plain and entry.grant(permit):
            return permit
        self._look_at_loop(permit)
        if permit.late and plain and self._places.plain:
            return self._refuse_late(permit)
        permit.describe(tenant, weight, timeout, deadline)
        return self._ask_now(permit) if at_once else permit

    def _look_at_loop(self, permit: ShedPermit) -> None:
        """Note how long a request sat in its event loop, and whether it is late. One of the highest class never is."""
        permit.began = now = self._places.now()
        delay = self._loops.of_request(now) if "asyncio" in modules else 0
        if delay > BOUND:
            permit.loop_delay, multiple = delay, 1 << permit.entry.below
            permit.late = self._loops.is_late(now, delay, multiple) and permit.rank > 0

    def _ask_now(self, permit: ShedPermit) -> ShedPermit:
        """Grant or refuse a permit whose caller has not waited yet; one that may wait stays as it is."""
        self.ask(permit, None)
        if permit.state != "held":
            self._loops.uncount()
        return permit

    def _refuse_late(self, permit: ShedPermit) -> ShedPermit:
        """Refuse a request that sat in its loop too long, in few steps: there are many while a loop is behind."""
        with self._lock:
            self._state.refuse(permit.began, permit, "loop")
        self._loops.uncount()
        return permit

    def measure(self, permit: ShedPermit, in_flight: int) -> None:
        """Tell the estimator of a request that an entry has let in."""
        with self._lock:
            self._state.measure(permit, in_flight)

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
            woken = self._state.take_back_lost(self.now()) if self._places.abandoned else []
            stats = self._state.stats()
        wake_all(woken)
        return stats

    def note_queue(self, seconds: float) -> None:
        """Tell how long a request waited before it reached this process, for the signal `queue`."""
        if self._workers is not None:
            self._workers.queue = max(self._workers.queue, round(seconds * SECOND))

    def fill(self) -> None:
        """Let waiting requests have the places that are free."""
        with self._lock:
            woken = self._state.fill(self.now())
        wake_all(woken)

    def sample(self, permit: ShedPermit, outcome: Outcome) -> None:
        """Tell the estimator the latency of a request, once; let waiting requests have places that are free."""
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
            permit.release("ignored")
            raise
        self.give_up(waiter)

    def ask(self, permit: ShedPermit, waiter: Waiter | None) -> bool:
        """Grant or refuse a permit, or let its request wait. False if it waits, or will have to."""
        now = self.now()
        reason = None if self._mode == "off" or permit.examined else self._reason(now, permit)
        permit.examined = True
        with self._lock:
            state, mode = self._state, self._mode  # read here: `off` has let all go on that wait, and this is one more
            woken = state.take_back_lost(now) if self._places.abandoned else []
            if mode == "off":
                state.grant(now, permit, sampled=False)
            elif reason is None and state.grant(now, permit, state.limit_of(permit.rank)):
                pass
            elif mode == "observe":
                state.count_refusal(now, permit, reason or "limit")
                state.grant(now, permit)
            elif reason is None and waiter is not None:
                woken += state.wait(now, waiter)
            elif reason is not None or permit.due is None:
                state.refuse(now, permit, reason or "limit")
        wake_all(woken)
        return permit.state != "asked"

    def _reason(self, now: int, permit: ShedPermit) -> Reason | None:
        """Return why to refuse a request even if a permit is free."""
        if permit.late:
            return "loop"
        if self._workers is not None:
            self._workers.look(now, permit.loop_delay, self._places.in_flight / self.estimator.undipped)
            if permit.rank >= self.classes.critical and self._workers.sheds(permit.entry.below):
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
            woken = self._state.take_back_lost(self.now()) if self._places.abandoned else []
            self._state.give_up(self.now(), waiter)
        wake_all(woken)
