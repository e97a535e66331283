"""Clients that ask while a test does something to a service; each is a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Self


class Load:
    """Clients that start with a block and end with it: each looks at `ends` before it asks again."""

    def __init__(self, clients: Iterable[Callable[[], None]]) -> None:
        self.ends = threading.Event()
        self._threads = [threading.Thread(target=client) for client in clients]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        for thread in self._threads:
            thread.join()
