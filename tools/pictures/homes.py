"""Where the state is: what one limit admits when each process counts alone, and when processes share a store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from headgate import Limiter, MemoryStore, SqliteStore
from headgate.testing import ManualClock
from tools.pictures.svg import Picture

LIMIT, ASKED = "100/minute", 150
"""Of each of the processes."""


def admitted(limiters: Sequence[Limiter]) -> list[int]:
    """How many requests each process admits of those that come at one instant, in turn."""
    counts = [0] * len(limiters)
    for _ in range(ASKED):
        for number, limiter in enumerate(limiters):
            counts[number] += bool(limiter.hit("customer"))
    return counts


def homes() -> list[tuple[str, str, str, list[int]]]:
    """Title, stores, what it needs, and the counts of the processes, for each home."""
    clock = ManualClock()
    alone = admitted([Limiter(LIMIT, store=MemoryStore(clock=clock)) for _ in range(4)])
    with tempfile.TemporaryDirectory() as folder:
        stores = [SqliteStore(f"sqlite://{Path(folder, 'limits.db')}", clock=clock) for _ in range(4)]
        host = admitted([Limiter(LIMIT, store=store) for store in stores])
        for store in stores:
            store.close()
    one = MemoryStore(clock=clock)  # stands for the server: one state, and eight processes that ask it
    fleet = admitted([Limiter(LIMIT, store=one) for _ in range(8)])
    return [
        ("Memory", "memory://", "nothing", alone),
        ("One host", "shared://  sqlite://", "a directory, or a file", host),
        ("A fleet", "redis://  postgresql://", "a server", fleet),
    ]


def picture() -> str:
    """Processes as boxes, their state below them, and the sum."""
    about = f"{LIMIT} in memory, on one host and on a server: four processes that count alone admit four times as much"
    drawn = Picture(900, 300, about)
    drawn.text(20, 28, f"Where {LIMIT} is counted, and what all processes together admit", "ink title")
    for column, (title, urls, needs, counts) in enumerate(homes()):
        left = 20 + 293 * column
        drawn.rect(left, 46, 276, 236, "box", 8)
        drawn.text(left + 14, 70, title, "ink title")
        drawn.text(left + 14, 90, urls, "soft code")
        shared, step = column > 0, 248 / len(counts)
        for number, count in enumerate(counts):
            x = left + 14 + step * number
            drawn.rect(x, 106, step - 6, 40, "back", 4)
            drawn.text(x + (step - 6) / 2, 131, str(count), "ink", "middle")
            drawn.line(x + (step - 6) / 2, 146, x + (step - 6) / 2, 170)
            if not shared:
                drawn.rect(x + step / 2 - 18, 170, 30, 22, "used", 4)
        if shared:
            drawn.rect(left + 14, 170, 242, 22, "used", 4)
        drawn.text(left + 14, 222, f"{sum(counts)} admitted of {ASKED * len(counts)}", "ink" if shared else "bad")
        drawn.text(left + 14, 244, f"{len(counts)} processes, {'one count' if shared else 'four counts'}", "soft")
        drawn.text(left + 14, 264, f"needs {needs}", "soft")
    return drawn.svg()
