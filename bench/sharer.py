"""A sharer: a contestant whose state several processes share, and the place where they meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

WEEKS = 4
"""The period of every limit that is shared: memcached takes more than 30 days for a date."""
IN_MEMORY = Path("/dev/shm")


class Place(NamedTuple):
    """A directory of the processes' own, the limit of the key they hit, and what else they were given to share."""

    directory: Path
    amount: int
    given: Any = None


@contextmanager
def nothing(place: Place) -> Iterator[None]:
    """The directory is all that is shared."""
    yield


@dataclass(frozen=True)
class Sharer:
    """`open(place)` gives the names that `call` uses, in each process; awaited where the call is."""

    name: str
    open: Callable[[Place], Any]
    call: str
    count: int
    """Hits of each process in one run."""
    yes: str = "answer"
    begin: Callable[[Place], AbstractContextManager[Any]] = nothing
    """What is there before the processes and after them: a server, or something they inherit."""
    exact: bool = True
    """False where a rival is known to miscount: then what it admitted is shown."""
    degraded: str = "False"
    """Whether the answer was given without the others, as an expression."""


def own_directory() -> TemporaryDirectory[str]:
    """In memory where the system has such a place; removed with the process, if not before."""
    return TemporaryDirectory(prefix="headgate-bench-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)


def cores() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
