"""A thread that buys leases, for programs that would rather not have a caller do it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from headgate.wording import log_of

log: Final = log_of("headgate")


class Buyer:
    """Buys what it is told to, one after the other, and gives back what has run out."""

    def __init__(self, every: float, buy: Callable[[str, int], None], give_back: Callable[[], None]) -> None:
        self._every, self._buy, self._give_back = every, buy, give_back
        self._orders: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def buy(self, key: str, units: int) -> None:
        """Order permits."""
        self._orders.put((key, units))
        self.start()

    def start(self, needed: bool = True) -> None:
        """See to it that somebody works, if there is anything to look after."""
        if needed and (self._thread is None or not self._thread.is_alive()):
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._work, name="headgate-leases", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """End, after what was ordered."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._orders.put(None)
            thread.join(1.0)

    def _work(self) -> None:
        while True:
            try:
                order = self._orders.get(timeout=self._every)
                if order is None:
                    return
                self._buy(*order)
            except queue.Empty:
                pass
            except Exception:
                log.exception("a lease could not be bought")
            self._give_back()
