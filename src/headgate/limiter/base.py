"""The common base of both limiters: limits on a store, and the queue of waiting callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.clock import SECOND, Clock
from headgate.engine import LONGEST_WAIT, Decision
from headgate.errors import InvalidCall
from headgate.limit import PAUSE, Given, Limit, as_limits
from headgate.limiter.counts import Counts
from headgate.limiter.wait_queue import DEFAULT_MAX_WAITING, WaitQueue, lends
from headgate.stores import Answer, BaseGate, Bound, OnError, Store, checked_namespace, checked_on_error, open_store
from headgate.waiting import checked_wait
from headgate.wording import Renamed, explained

if TYPE_CHECKING:
    from headgate.stores import Lease


class BaseLimiter(BaseGate[Bound, Answer]):
    """Limits on the store that the user chose."""

    if not TYPE_CHECKING:
        slot = Renamed("use permit(key, timeout=None), which waits for a permit and holds it")
        guard = Renamed("use limited(key) around a function, permit(key) around a block")
        bind = Renamed("use headgate.testing.frozen(limiter) or disabled(limiter) in tests")
        flies = Renamed("use the in_flight of each limit in limiter.limits")

    @explained
    def __init__(
        self,
        *limits: Given,
        store: Store | str | None = None,
        namespace: str = "default",
        clock: Clock | None = None,
        on_error: OnError = "local",
        max_waiting: int = DEFAULT_MAX_WAITING,
        lease: Lease | bool = False,
        pausable: bool = False,
    ) -> None:
        checked_namespace(namespace)
        checked_on_error(on_error)
        self._opened_from: tuple[Store | str | None, Clock | None] = (store, clock)
        self.max_waiting = max_waiting
        self.lease = self._lease = lease
        every = tuple(each for given in limits for each in as_limits(given))
        self.pausable = bool(pausable)
        self._guard = guard_of(every, bool(lease)) if pausable else ()
        self._opened = open_store(store, clock)
        if lease and not hasattr(self._opened, "bind_leased"):
            raise InvalidCall(
                "lease needs a store on a server, such as redis://cache; this store is as fast without: leave lease out"
            )
        self._owned = self._opened is not store
        super().__init__(self._opened, namespace, every, on_error)

    def _use(self, store: Store) -> None:
        most = 0 if getattr(store, "refuses_all", False) else self.max_waiting
        self._queue = WaitQueue(self.limits, store, most, self.pausable)
        super()._use(store)

    def counts(self) -> Counts:
        """Return the number of decisions of this limiter in this process, by their result."""
        return Counts(*self._tally.values()[:4])

    @property
    def in_flight(self) -> int:
        """The number of callers that hold a permit of this limiter, in this process."""
        return self._tally.values()[4]

    @property
    def leased(self) -> int:
        """The number of tokens of leases that this process holds unspent."""
        return int(getattr(self._bound, "unspent", 0))

    @property
    def waiting(self) -> int:
        """The number of callers that wait at this limiter, in this process; at most `max_waiting`."""
        return self._queue.waiting

    def _wake(self, decision: Decision) -> None:
        if self._queue.by_key:
            self._queue.wake(decision)

    def _promise(self, max_wait: float | None) -> int:
        """Return how many microseconds a reservation may wait; raise `InvalidCall` if the limits cannot promise it."""
        if self._holds_permits:
            raise InvalidCall("a limit in flight cannot be reserved: use limiter.permit(key) instead")
        if max_wait is None:
            return LONGEST_WAIT
        wait = checked_wait(max_wait)
        cannot: list[Limit] = [limit for limit in self.limits if not lends(limit)]
        if wait and cannot:
            raise InvalidCall(
                f"{cannot[0]} cannot promise a delay: only the bucket family without a block can. Use max_wait=0 to "
                "reserve what fits now, or acquire(key), which waits in this process"
            )
        if wait > LONGEST_WAIT:
            raise InvalidCall(f"a reservation can wait at most {LONGEST_WAIT // SECOND} s; got max_wait={max_wait!r}")
        return wait

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a limiter by the URL of its store, which another process opens again."""
        store, clock = self._opened_from
        if not isinstance(store, str) or store.startswith("memory:") or clock is not None:
            raise InvalidCall(
                "only a limiter whose store is a URL that other processes share can be pickled, such as redis://cache "
                "or shared:///dev/shm/api: the counts of this one are in the memory of this process"
            )
        names = ("namespace", "on_error", "max_waiting", "lease", "pausable")
        return rebuilt, (type(self), self.limits, {"store": store, **{name: getattr(self, name) for name in names}})

    def __repr__(self) -> str:
        words = "; ".join(map(str, self.limits))
        return f"{type(self).__name__}({words!r}, namespace={self.namespace!r})"


def rebuilt(kind: type[BaseLimiter[Any, Any]], limits: tuple[Limit, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a limiter from its pickle."""
    return kind(*limits, **options)


def guard_of(limits: tuple[Limit, ...], leased: bool) -> tuple[Limit, ...]:
    """Return the pause that is asked beside these limits; raise `InvalidCall` if the limiter cannot be paused."""
    if leased:
        raise InvalidCall(
            "pausable and lease exclude each other: leased tokens are spent without asking the store, so a pause would "
            "not stop them; leave one of both out"
        )
    if any(limit.name == PAUSE.name for limit in limits):
        raise InvalidCall(f"{PAUSE.name!r} names the pause of a pausable limiter; choose another name for the limit")
    return (PAUSE,)
