"""The time that calls have: `with deadline(5):`, or the deadline of the request that is being served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.clock import steady_ns
from headgate.errors import InvalidCall
from headgate.shed import deadline_ns

NANOSECONDS = 1_000_000_000


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Refuse calls inside the block at once if they cannot be made within this time; an earlier deadline stays."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidCall(f"a deadline is a number of seconds from 0; got {seconds!r}")
    at_ns = steady_ns() + round(min(seconds, 1e9) * NANOSECONDS)
    outer = deadline_ns.get()
    token = deadline_ns.set(at_ns if outer is None else min(outer, at_ns))
    try:
        yield
    finally:
        deadline_ns.reset(token)


def time_left() -> float | None:
    """Return the seconds until the deadline, at least 0; None if there is none."""
    at_ns = deadline_ns.get()
    return None if at_ns is None else max(0.0, (at_ns - steady_ns()) / NANOSECONDS)
