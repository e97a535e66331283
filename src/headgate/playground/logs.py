"""The busiest clients of a log, for a page that replays one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.lab import Log
from headgate.wording import printable

MOST_BYTES: Final = 64 * 2**20
"""The largest log that a page may send."""
MOST_REQUESTS: Final = 20_000
"""Requests of one client that are kept."""
SHOWN: Final = 10
LONGEST_KEY: Final = 40


class Client(NamedTuple):
    """One client of a log."""

    key: str
    requests: int
    times: Sequence[int]
    """In microseconds from its first request; the first `MOST_REQUESTS` of them."""

    def told(self) -> dict[str, Any]:
        """Return what the page shows of it."""
        return {"key": self.key, "name": printable(self.key, LONGEST_KEY), "requests": self.requests}


def busiest(open_log: Callable[[], str | Path | BinaryIO]) -> tuple[Client, ...]:
    """Read a log twice: to find its busiest clients, and to keep the times of their requests."""
    counts = Counter(key for batch in Log([open_log()]).batches() for _, key, *_ in batch)
    if not counts:
        raise InvalidCall("the log has no request")
    times: dict[str, list[int]] = {key: [] for key, _ in counts.most_common(SHOWN)}
    for batch in Log([open_log()]).batches():
        for time, key, *_ in batch:
            kept = times.get(key)
            if kept is not None and len(kept) < MOST_REQUESTS:
                kept.append(time)
    return tuple(Client(key, counts[key], [each - kept[0] for each in kept]) for key, kept in times.items())
