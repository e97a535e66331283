"""What the two limiters share: limits, a store, a namespace, and the gate they make together."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from headgate.clock import SECOND, Clock
from headgate.engine.modes import LONGEST_WAIT
from headgate.errors import InvalidCall, StoreError
from headgate.limit import Given, as_limits
from headgate.limiter.wait_queue import DEFAULT_MAX_WAITING, WaitQueue, checked_wait, lends
from headgate.stores import Gate, OnError, Store, open_store
from headgate.wording import explained

if TYPE_CHECKING:
    from headgate.stores.leases import Lease


class BaseLimiter:
    """Limits on a store."""

    store: Store
    _gate: Gate

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
    ) -> None:
        if not isinstance(namespace, str) or not namespace or "\0" in namespace:
            raise StoreError(f"a namespace is a str that is not empty and has no NUL; got {namespace!r}")
        if on_error not in get_args(OnError):
            raise StoreError(f"on_error is one of {', '.join(get_args(OnError))}; got {on_error!r}")
        self.namespace = namespace
        self.on_error = on_error
        self.max_waiting = max_waiting
        self.limits = tuple(limit for given in limits for limit in as_limits(given))
        self.lease = lease
        self.holds_permits = any(limit.in_flight for limit in self.limits)
        """Whether something is in flight after a yes, until it is released."""
        self._opened = open_store(store, clock)
        if lease and not hasattr(self._opened, "leased_gate"):
            raise InvalidCall(
                "leases are for stores on a server, as redis://cache is; this one is as fast without them"
            )
        self._owned = self._opened is not store
        self.bind(self._opened)

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        self.store = store
        self._gate = self._open_gate(store)
        self._queue = WaitQueue(self.limits, store, self.max_waiting)

    def _open_gate(self, store: Store) -> Gate:
        return store.gate(self.namespace, self.limits, self.on_error)

    def _promise(self, max_wait: float | None) -> int:
        """How many microseconds a reservation may be made to wait."""
        if self.holds_permits:
            raise InvalidCall("what is in flight is held, not reserved: take a permit(key), which ends")
        if max_wait is None:
            return LONGEST_WAIT
        wait = checked_wait(max_wait)
        cannot = [limit for limit in self.limits if not lends(limit)]
        if wait and cannot:
            raise InvalidCall(
                f"{cannot[0]} cannot promise a delay: only the bucket family without a block can. Reserve what fits "
                "now with max_wait=0, or acquire, which waits in this process"
            )
        if wait > LONGEST_WAIT:
            raise InvalidCall(
                f"a delay of at most {LONGEST_WAIT // SECOND} s can be promised; got max_wait={max_wait!r}"
            )
        return wait

    def __repr__(self) -> str:
        words = "; ".join(map(str, self.limits))
        return f"{type(self).__name__}({words!r}, namespace={self.namespace!r})"
