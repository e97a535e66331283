"""Servers that are hard to reach: addresses where nobody answers, names whose addresses nobody tells."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from headgate import Limiter
from headgate.stores import OnError
from headgate.stores.redis import RedisStore
from tests.support.faults import DEADLINE, MANY, PATIENT, open_store
from tests.support.remote import awaited

NAME = "cache.test"
"""What a `Names` is asked for; every other name is left to the system."""
WAYS = ["threads", "asyncio"]
LET_IN = 0.2
"""Seconds in which a connection on this machine is made, if it is made at all."""
SOON = 0.25
"""Seconds to connect, unless a test says otherwise."""
PATIENTLY: dict[str, Any] = {"deadline": PATIENT, "connect_timeout": 2.0}
"""For tests of what is reached in the end, of which a silent server takes a share first."""


@contextlib.contextmanager
def opened(
    way: str, url: str, on_error: OnError = "local", **options: Any
) -> Iterator[tuple[Limiter, Callable[[], None]]]:
    """A limiter on a server, called or awaited, and how to make it connect anew."""
    given = {"deadline": DEADLINE, "connect_timeout": SOON, **options}
    if way == "threads":
        with open_store(url, **given) as store:
            yield Limiter(MANY, store=store, on_error=on_error), store.close
    else:
        with awaited(store := RedisStore(url, **given)) as home:
            anew = lambda: home.loop.run_until_complete(store.aclose())  # noqa: E731
            yield Limiter(MANY, store=home, on_error=on_error), anew


@contextlib.contextmanager
def silent(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port where the system accepts connections and nobody says a word."""
    with socket.create_server((host, port), backlog=1000) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port where nothing comes back: the queue of a listener is full, so that the system drops new connections."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, port), backlog=0))
        while True:  # until one is not let in: a busy system takes its time, and lets in more than the queue holds
            knocking = stack.enter_context(socket.socket())
            knocking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                knocking.connect(listener.getsockname())
            waiting = select.poll()
            waiting.register(knocking, select.POLLOUT)
            if not waiting.poll(1000 * LET_IN):
                break
        yield listener.getsockname()[1]


class Names:
    """Stands in for the system's lookup of one name, which may be made to say nothing."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self._asked: list[str] = []
        self.silent_for = 0.0
        """Seconds that each lookup takes, whatever becomes of the others: as with a packet that is lost."""
        self.speaks = threading.Event()
        self.speaks.set()
        self._system = socket.getaddrinfo

    @property
    def lookups(self) -> int:
        return len(self._asked)

    def getaddrinfo(self, host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        if host != NAME:
            return self._system(host, port, *arguments, **options)
        self._asked.append(host)  # in one step: a number could lose the addition of another thread
        time.sleep(self.silent_for)
        assert self.speaks.wait(60), "a test is over, and its lookups are not"
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]
