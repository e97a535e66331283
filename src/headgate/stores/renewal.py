"""The permits of this process on a server, renewed together before half of their lease is over.

A process that dies renews nothing, so its permits are free when their leases end. The server's clock measures the
lease and a mark identifies each permit, so a late command touches no other permit: a permit whose lease has ended is
not renewed, and giving it back frees nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.arguments import Mark
from headgate.wording import log_of

RENEWALS: Final = 4
"""Renewals in the duration of a lease."""

log = log_of("headgate")


class Name(NamedTuple):
    """The identity of a permit."""

    namespace: str
    limit: str
    key: str
    mark: Mark


class Held:
    """A permit in flight."""

    __slots__ = ("key", "limit", "mark", "names", "renewed", "units")

    def __init__(self, names: Any, limit: Limit, key: str, mark: Mark, units: int) -> None:  # noqa: ANN401
        self.names, self.limit, self.key, self.mark, self.units = names, limit, key, mark, units
        self.renewed = time.monotonic()

    @property
    def pause(self) -> float:
        """Seconds between renewals."""
        return self.limit.period_us / SECOND / RENEWALS


class BaseRenewal:
    """The permits that the gates of one store hold in this process. A store renews them in its own way.

    `names` are the store's own names of the keys of a `namespace`.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all permits, after a fork: they are the parent's."""
        self.held: dict[Name, Held] = {}
        self.pause = 0.0
        """Seconds until the thread runs again."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.thread: threading.Thread | None = None

    def hold(self, names: Any, limit: Limit, key: str, mark: Mark, units: int) -> None:  # noqa: ANN401
        """Renew this permit from now on."""
        held = Held(names, limit, key, mark, units)
        with self._lock:
            if self.thread is None:
                thread = threading.Thread(target=self._renew_all, name="headgate-renew", daemon=True)
                thread.start()  # may raise; then no permit is held that would not be renewed
                self.thread = thread
            elif held.pause < self.pause:
                self._changed.notify()
            self.held[Name(names.namespace, limit.identity, key, mark)] = held

    def drop(self, names: Any, limit: Limit, key: str, mark: Mark | None, units: int) -> int:  # noqa: ANN401
        """Stop renewing `units` of a permit; return how many were held: 0 if it is lost or another process has it."""
        if mark is None:
            return 0
        name = Name(names.namespace, limit.identity, key, mark)
        with self._lock:
            held = self.held.get(name)
            if held is None:
                return 0
            units = min(units, held.units)
            held.units -= units
            if not held.units:
                del self.held[name]
            return units

    def drop_key(self, names: Any, limits: Iterable[Limit], key: str) -> None:  # noqa: ANN401
        """Stop renewing the permits of a key under these limits, since the key was reset."""
        reset = {(names.namespace, limit.identity, key) for limit in limits}
        with self._lock:
            self.held = {name: held for name, held in self.held.items() if name[:3] not in reset}

    def drop_all(self, namespace: str) -> None:
        """Stop renewing all permits of a namespace."""
        with self._lock:
            self.held = {name: held for name, held in self.held.items() if name.namespace != namespace}

    def close(self) -> None:
        """Stop renewing until another permit is taken; held permits can still be given back."""
        with self._lock:
            self.thread = None
            self._changed.notify_all()

    def marks(self, names: Any, limit: Limit, key: str) -> list[Mark]:  # noqa: ANN401
        """Return the marks of the permits of a key that this process holds."""
        wanted = (names.namespace, limit.identity, key)
        with self._lock:
            return [name.mark for name in self.held if name[:3] == wanted]

    def _renew_all(self) -> None:
        me, idle = threading.current_thread(), False
        while True:
            with self._lock:
                self.pause = min((held.pause for held in self.held.values()), default=1.0)
                self._changed.wait(self.pause)
                if self.thread is not me:
                    return
                if not self.held:
                    if idle:
                        self.thread = None
                        return
                    idle = True
                    continue
                idle = False
                # New permits wait for the next round, which still comes before half of their lease is over.
                now = time.monotonic()
                due = [held for held in self.held.values() if now - held.renewed >= held.pause / 2]
            self.renew(due)

    def renew(self, due: Iterable[Held]) -> None:
        """Renew these permits on the server now."""
        raise NotImplementedError

    def note(self, batch: list[Held], left: list[int], sent: float) -> None:
        """Note a renewal that was sent at this time, and the units of each permit that are still in flight."""
        lost = 0
        with self._lock:
            for held, units in zip(batch, left, strict=True):
                held.renewed = sent
                name = Name(held.names.namespace, held.limit.identity, held.key, held.mark)
                if not units and self.held.get(name) is held:
                    del self.held[name]
                    lost += 1
        if lost:
            log.warning("%d permits were lost: their leases had ended, or the server has forgotten them", lost)
