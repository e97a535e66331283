"""The state of one key under one limit, in lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from headgate.clock import SECOND
from headgate.engine import PEEK
from headgate.stores import BoundLimits

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def describe(bound: BoundLimits, key: str) -> Iterator[str]:
    """Yield what the limit has left; then the permits in flight, or the stamps of a log."""
    (limit,) = bound.limits
    decision = bound.run(key, (1,), PEEK)
    ((until, stamps),) = bound.records(key)
    line = f"  {limit}: {decision.remaining} of {limit.burst} left"
    if until:
        line += f", blocked until {instant(until)}"
    elif decision.unknown:
        line += ", until a permit is released"
    elif not decision.allowed and limit.block_us:
        line += ", not blocked: the next request will be"
    elif not decision.allowed:
        line += f", next in {decision.retry_after:g} s"
    yield line
    for _, age_us, units, _ in sorted(bound.holders(key), key=lambda held: -held[1]):
        yield f"    in flight for {age_us / SECOND:.1f} s" + (f": {units} units" if units > 1 else "")
    for stamp, times in Counter(stamps).items():
        yield f"    counted at {instant(stamp)}" + (f": {times} units" if times > 1 else "")


def instant(us: int) -> str:
    """Write an instant in UTC, to the microsecond, by the clock of the store."""
    return f"{EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S.%f} UTC"
