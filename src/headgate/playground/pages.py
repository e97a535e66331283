"""Open pages: each has a world of its own, which ends with its page."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headgate.errors import InvalidCall
from headgate.playground.logs import Client
from headgate.playground.world import World
from headgate.wording import shown, suggestion

MOST_PAGES: Final = 20
FRAMES: Final = 30
"""Frames a second."""
LONGEST_STEP: Final = 0.2
"""Seconds of one frame at most: a machine that slept does not run hours at once."""

Action = Callable[["Page", Any], object]


class Page:
    """One open page."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.name = secrets.token_urlsafe(8)
        self._world = World()
        self._lock = threading.Lock()
        """The thread of the event stream runs the world; requests of the page change it."""
        self._told: dict[str, Any] = {}
        self.clients = clients
        """Clients of a log, the busiest first."""
        self.client = ""
        """The key of the client that is replayed."""

    def act(self, action: str, value: object) -> object:
        """Do what the user did; return what the page wants to know of it."""
        known = ACTIONS.get(action)
        if known is None:
            raise InvalidCall(f"unknown action {shown(action)}: {suggestion(action, ACTIONS)}")
        with self._lock:
            return known(self, value)

    def replay(self, key: str | None = None) -> None:
        """Replay a client of the log: the busiest, unless one is chosen."""
        chosen = [client for client in self.clients if key in (None, client.key)]
        if not chosen:
            raise InvalidCall("this client is not in the log")
        self.client = chosen[0].key
        self._world.set_log(chosen[0].times)

    @property
    def world(self) -> World:
        """The world; only actions, which hold the lock, use it."""
        return self._world

    def _head(self) -> dict[str, Any]:
        clients = [each.told() for each in self.clients]
        return {**self._world.head(), "clients": clients, "client": self.client}

    def events(self, closing: threading.Event) -> Iterator[bytes]:
        """Run the world until the page or the server closes; yield what the page draws."""
        last = time.monotonic()
        while not closing.is_set():
            now = time.monotonic()
            with self._lock:
                self._world.step(min(LONGEST_STEP, now - last))
                head, frame = self._head(), self._world.frame()
            last = now
            if head != self._told:
                self._told = head
                yield _event("head", head)
            yield _event("frame", frame)
            closing.wait(max(0.0, now + 1 / FRAMES - time.monotonic()))


class Pages:
    """The open pages, by name."""

    def __init__(self) -> None:
        self._open: dict[str, Page] = {}
        self._lock = threading.Lock()

    def open(self, clients: Sequence[Client]) -> Page | None:
        """Open a page; None if there are too many."""
        with self._lock:
            if len(self._open) >= MOST_PAGES:
                return None
            page = Page(clients)
            self._open[page.name] = page
            return page

    def close(self, page: Page) -> None:
        """Forget a page and its world."""
        with self._lock:
            self._open.pop(page.name, None)

    def get(self, name: object) -> Page:
        """Return an open page."""
        page = self._open.get(name) if isinstance(name, str) else None
        if page is None:
            raise InvalidCall("this page is closed: load it again")
        return page

    def __len__(self) -> int:
        return len(self._open)


def _event(name: str, value: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidCall(f"expected a number; got {shown(value)}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidCall(f"expected a text; got {shown(value)}")
    return value


def _pause(page: Page, value: object) -> None:
    page.world.paused = bool(value)


def _answer(page: Page, value: object) -> str:
    if not (isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)):
        raise InvalidCall(f"expected a lane and a request; got {shown(value)}")
    if not 0 <= value[0] < len(page.world.lanes):
        raise InvalidCall(f"there is no lane {value[0]}")
    return page.world.answer(*value)


ACTIONS: Final[dict[str, Action]] = {
    "attack": lambda page, _: page.world.attack(),
    "burst": lambda page, _: page.world.click(page.world.limit.amount),
    "one": lambda page, _: page.world.click(),
    "pause": _pause,
    "restart": lambda page, _: page.world.restart(),
    "limit": lambda page, value: page.world.restart(_text(value)),
    "traffic": lambda page, value: page.world.set_traffic(_text(value)),
    "client": lambda page, value: page.replay(_text(value)),
    "rate": lambda page, value: page.world.set_rate(_number(value)),
    "speed": lambda page, value: page.world.set_speed(_number(value)),
    "answer": _answer,
}
"""The actions that a page can ask for."""
