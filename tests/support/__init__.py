"""What tests share: servers, apps, faults, and ways to ask."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


@contextmanager
def side_by_side(works: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Threads that start before the block, and have ended after it."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
