"""Memory while a long log is read: bounded by the requests held back, not by lines."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

import pytest

from headgate.lab.logs import Log, order
from headgate.lab.logs.order import MOST_HELD
from tests.lab.logs.support import Lines, common

pytestmark = pytest.mark.engineless
A_SECOND = 1_000
MIB = 1 << 20


def lines(count: int) -> Iterator[bytes]:
    """A thousand requests a second, of two thousand clients: more in 5 minutes than are held back."""
    for second in range(count // A_SECOND):
        before, between, after = common(second, "#", "#").split("#")
        some = range(second * A_SECOND, (second + 1) * A_SECOND)
        yield "".join([f"{before}client-{i % 2000}{between}/items/{i}{after}" for i in some]).encode()


def endless() -> Iterator[bytes]:
    yield common(0).encode()
    yield common(1).encode()
    for _ in range(1_000):
        yield b"x" * 100_000
    yield b"\n"


def peak_of(made: Iterator[bytes]) -> tuple[Log, int]:
    tracemalloc.start()
    try:
        log = Log([io.BufferedReader(Lines(made))])
        for _ in log.batches():
            pass
        return log, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("held", [20_000, pytest.param(MOST_HELD, marks=pytest.mark.soak)])
def test_a_long_log_is_read_in_bounded_memory(monkeypatch, held):
    """At most the requests that are held back are in memory, about 300 bytes each with their paths."""
    monkeypatch.setattr(order, "MOST_HELD", held)
    log, peak = peak_of(lines(5 * held))
    assert (log.facts.requests, log.facts.late) == (5 * held, 0)
    assert peak < held * 400 + 8 * MIB


def test_a_line_of_a_hundred_megabytes_is_skipped():
    """A line without an end is thrown away while it is read."""
    log, peak = peak_of(endless())
    assert (log.facts.requests, log.facts.unreadable) == (2, 1)
    assert peak < 4 * MIB
