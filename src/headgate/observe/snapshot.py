"""The snapshot: everything that one process, or all workers of an app, have counted, as one JSON object.

It is what a process publishes, what `/top` and `/counts` serve, and what `headgate top` reads. Counts only grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

VERSION: Final = 1
RESULTS: Final = (
    "allowed", "refused", "shadowed", "observed", "delayed", "exempt", "degraded_allowed", "degraded_refused",
)  # fmt: skip
ALWAYS: Final = ("allowed", "refused", "exempt", "degraded_allowed", "degraded_refused")
"""The results that every rule tells, also before they happen; others are told by rules whose `act` can have them."""
BY_ACT: Final = {"shadow": "shadowed", "observe": "observed", "delay": "delayed"}
MOST_KEYS: Final = 1_000
"""The most keys of a list, also of a merged one."""


class LimitPart(TypedDict):
    """One limit of a rule, for the default plan."""

    text: str
    amount: int
    period: float
    """Seconds; 0 for a limit in flight."""


class RulePart(TypedDict):
    """One rule, with its counts."""

    namespace: str
    rule: str
    limits: list[LimitPart]
    counts: dict[str, int]


class LimiterPart(TypedDict):
    """One namespace of limiters, with its counts, and what its callers hold now."""

    namespace: str
    counts: dict[str, int]
    in_flight: int
    waiting: int
    lease_permits: int


class ShedPart(TypedDict):
    """The load shedder of one namespace: its `Stats`."""

    namespace: str
    limit: int
    in_flight: int
    waiting: int
    base_latency: float
    latency: float
    admitted: int
    refused: dict[str, dict[str, int]]
    """Refusals by class, then by reason."""


class StorePart(TypedDict):
    """One store."""

    id: int
    """Tells whether two parts of one process are the same store."""
    name: str
    kind: str
    up: bool
    errors: int
    keys: int | None
    evictions: int | None
    degraded: bool
    seconds: dict[str, Any] | None
    """The time of commands to a server: `buckets` (upper bound and count, not summed), `sum`, `count`."""


class KeyPart(TypedDict):
    """One key of a list: it came at most `count` times, and at least `count - error` times."""

    rule: str
    key: str
    count: int
    error: int
    since: float


class PolicyPart(TypedDict):
    """The policy, and how its file was read."""

    file: str | None
    loaded_at: float
    reload_failures: int


class Snapshot(TypedDict):
    """All of it."""

    version: int
    at: float
    started: float
    workers: int
    namespace: str
    policy: PolicyPart
    stores: list[StorePart]
    rules: list[RulePart]
    limiters: list[LimiterPart]
    shedders: list[ShedPart]
    refused_keys: list[KeyPart]
    busiest_keys: list[KeyPart]
    floors: dict[str, int]
    """For each list of keys: the most that a key can have come that is not listed."""


def empty(at: float, namespace: str = "") -> Snapshot:
    """Return the snapshot of a process that has counted nothing."""
    return Snapshot(
        version=VERSION, at=at, started=at, workers=1, namespace=namespace,
        policy=PolicyPart(file=None, loaded_at=0.0, reload_failures=0),
        stores=[], rules=[], limiters=[], shedders=[],
        refused_keys=[], busiest_keys=[], floors={"refused": 0, "busiest": 0},
    )  # fmt: skip


KEYS: Final = ("refused_keys", "busiest_keys", "floors")
"""The parts of a snapshot about single keys: by far the largest, and no metric needs them."""


def without_keys(seen: Snapshot) -> dict[str, Any]:
    """Return a snapshot without its parts about keys."""
    return {part: value for part, value in seen.items() if part not in KEYS}


def added(total: dict[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of two sets of counts."""
    return {name: total.get(name, 0) + more.get(name, 0) for name in {**total, **more}}
