"""The front of the lab: requests of a log, or made ones, through limits or a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from headgate.errors import InvalidCall
from headgate.lab.comparison import Comparison, Measurement, compared
from headgate.lab.logs import Log, Row
from headgate.lab.policies import PolicyMeasurement, PolicyReplay
from headgate.limit import Limit
from headgate.wording import shown

BATCH: Final = 4096
Progress = Callable[[int], None]
"""Is told the number of requests so far, now and then."""


def replay(requests: Log | Iterable[Row], *limits: Limit | str, progress: Progress | None = None) -> Comparison:
    """Send the same requests through several limits, or through one limit by every algorithm, in virtual time.

    Examples:
        >>> print(replay(Log(["access.log.gz"]), "60/minute"))  # doctest: +SKIP
    """
    candidates, remarks = compared(limits)
    measurement = Measurement(candidates)
    _take(requests, measurement.take, progress)
    return measurement.result(requests.facts if isinstance(requests, Log) else None, remarks)


def replay_policy(
    requests: Log, policy: str | Path, against: str | Path | None = None, *, progress: Progress | None = None
) -> PolicyReplay:
    """Tell rule by rule what a policy would have done and, against an older one, which clients notice the change."""
    measurement = PolicyMeasurement(policy, against, _known(requests))
    _take(requests, measurement.take, progress)
    return measurement.result(requests.facts)


def _take(requests: Log | Iterable[Row], take: Callable[[list[Row]], None], progress: Progress | None) -> None:
    seen = 0
    for batch in requests.batches() if isinstance(requests, Log) else _batches(requests):
        take(batch)
        seen += len(batch)
        if progress is not None:
            progress(seen)


def _batches(requests: Iterable[Row]) -> Iterator[list[Row]]:
    each = iter(requests)
    while batch := list(islice(each, BATCH)):
        yield batch


def _known(log: Log) -> frozenset[str]:
    """Return what the log tells about a request; `Log.key` is the client."""
    if log.key not in ("ip", "user"):
        raise InvalidCall(
            f"a policy needs the address or the user of a request: --key ip or user; got {shown(log.key)}"
        )
    return frozenset({log.key, "method", "path", "status"} - set(log.facts.missing))
