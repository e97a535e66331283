"""`Shaper`: delays callers to a constant rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Self, TypeVar

from headgate.engine import Decision
from headgate.shaper.base import EVERYTHING, Departure, Shaping
from headgate.shaper.pump import Pump
from headgate.stores import Gate, Store
from headgate.waiting import sleep_until
from headgate.wording import explained

T = TypeVar("T")
R = TypeVar("R")


class Shaper(Shaping):
    """A leaky bucket as a queue: `Shaper("3000/second queue 5000")`.

    Each caller gets its departure time and waits for it by itself. So no worker is needed, and all processes on one
    store share one queue.
    """

    def _use(self, store: Store) -> None:
        super()._use(store)
        self._gate = Gate(store, self.namespace, self.limits, self.on_error)

    def enter(self, key: str, cost: int = 1) -> Departure:
        """Take a place in the queue without waiting; false if the queue is full. The caller waits by itself."""
        return self._departure(self._gate.hit(key, cost))

    def shape(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait until the departure time, never less.

        Refused at once if the queue is full, or if the wait would be longer than `timeout` seconds.
        """
        if timeout is not None:
            refused = self._too_late(self._gate.peek(key, 0), key, cost, timeout)
            if refused is not None:
                return refused
        departure = self.enter(key, cost)
        if departure.delay_us:
            promise = self._promises.add(departure.decision, departure.at_us)
            try:
                sleep_until(self.store.clock, departure.at_us)
            except BaseException:
                for place in self._freed(promise):
                    self._gate.refund(place)
                raise
            self._promises.left(promise)
        return departure.decision

    @explained
    def drain(self, source: Iterable[T], key: str = EVERYTHING) -> Pump[T]:
        """Return a pump: the items of a source at the constant rate. It reads the next item when there is room."""
        return Pump(self, source, key)

    def map(self, function: Callable[[T], R], source: Iterable[T], key: str = EVERYTHING) -> Iterator[R]:
        """Call a function with each item of a source, at the constant rate, one after the other."""
        with self.drain(source, key) as pump:
            for item in pump:
                yield function(item)

    def close(self) -> None:
        """Close the store if this shaper opened it."""
        if self._owned and hasattr(self._opened, "close"):
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
