"""Lookups of host names that do not wait for a silent resolver.

The system's lookup cannot be interrupted and has no deadline: with a silent resolver it takes five seconds or more. It
runs in threads of its own, which a caller abandons when its time is over. These threads do not keep a process from
ending.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any, Final

FRESH: Final = 1.0
"""Seconds for which an answer is used again without a lookup."""
AGAIN: Final = 0.25
"""Seconds after which a second lookup of the same name starts: the packet of the first may have been lost."""
MOST_THREADS: Final = 32
"""The most lookups at a time, for all names together."""

Address = tuple[int, tuple[Any, ...]]
"""An address family, and the address for a socket of this family."""
Name = tuple[str, int]


class _Lookup:
    """A name that one or more threads look up: all callers get the first answer."""

    def __init__(self) -> None:
        self.answer: Future[list[Address]] = Future()
        self.answer.set_running_or_notify_cancel()  # a caller that gives up must not cancel it for others
        self.again = 0.0


class Resolver:
    """The addresses of names. While the resolver is silent, its last answer is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lookups: dict[Name, _Lookup] = {}
        self._known: dict[Name, tuple[list[Address], float]] = {}
        self._threads = 0

    def addresses(self, host: str, port: int, due: float) -> list[Address]:
        """Return addresses in the order in which to try them; `due` is a time of the monotonic clock."""
        name, known = (host, port), self._at_once(host, port)
        if known is not None:
            return known
        last = self._known.get(name)
        left = max(0.0, due - time.monotonic())
        try:
            return self._ask(name).result(left / 2 if last else left)
        except (TimeoutError, socket.gaierror) as error:
            return self._last(name, error)

    async def addresses_async(self, host: str, port: int, due: float) -> list[Address]:
        """Like `addresses`; `due` is a time of the event loop's clock."""
        name, known = (host, port), self._at_once(host, port)
        if known is not None:
            return known
        last = self._known.get(name)
        left = max(0.0, due - asyncio.get_running_loop().time())
        answer = asyncio.wrap_future(self._ask(name))
        try:
            return await asyncio.wait_for(answer, left / 2 if last else left)
        except (TimeoutError, socket.gaierror) as error:
            return self._last(name, error)

    def _at_once(self, host: str, port: int) -> list[Address] | None:
        """Return an address, or a name that was just looked up, without a lookup; else None."""
        for family, rest in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            return [(family, (host, port, *rest))]
        known = self._known.get((host, port))
        return known[0] if known and time.monotonic() - known[1] < FRESH else None

    def _last(self, name: Name, error: Exception) -> list[Address]:
        """Return the last known addresses if the resolver did not answer; raise if it knows no such name."""
        known = self._known.get(name)
        if known and (isinstance(error, TimeoutError) or error.args[0] == socket.EAI_AGAIN):
            return known[0]
        if isinstance(error, TimeoutError):
            raise TimeoutError(f"the host name {name[0]} was not resolved in time") from None
        raise error

    def _ask(self, name: Name) -> Future[list[Address]]:
        with self._lock:
            lookup = self._lookups.setdefault(name, _Lookup())
            now = time.monotonic()
            if now >= lookup.again and self._threads < MOST_THREADS:
                lookup.again = now + AGAIN
                thread = threading.Thread(target=self._look_up, args=(name, lookup), name="headgate-names", daemon=True)
                try:
                    thread.start()
                except RuntimeError as reason:
                    raise OSError("cannot start a thread to look up a host name") from reason
                self._threads += 1
        return lookup.answer

    def _look_up(self, name: Name, lookup: _Lookup) -> None:
        """Ask the system for the addresses of a name, in a thread, and answer all callers that wait for them."""
        found: list[Address] = []
        failure: Exception | None = None
        try:
            each = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys((int(family), address) for family, _, _, _, address in each))
        except Exception as error:  # for any error: no caller may wait for a thread that has ended
            failure = error
        with self._lock:
            self._threads -= 1
            if found:
                self._known[name] = found, time.monotonic()
            first = self._lookups.get(name) is lookup
            if first:
                del self._lookups[name]
        if first:
            if failure is None:
                lookup.answer.set_result(found)
            else:
                lookup.answer.set_exception(failure)
