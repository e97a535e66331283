"""The parts of a snapshot that one process has: of an edge, of limiters, of stores."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from headgate.limit import Limit
from headgate.observe.keys import KeyWatch
from headgate.observe.sketch import Listed
from headgate.observe.snapshot import (
    MOST_KEYS,
    RESULTS,
    KeyPart,
    LimiterPart,
    LimitPart,
    RulePart,
    Snapshot,
    StorePart,
    added,
    empty,
)

STARTED: Final = time.time()


class Edge(Protocol):
    """A middleware, an extension or an interceptor."""

    def snapshot(self) -> Snapshot:
        """Return what it has counted in this process."""


class Limiter(Protocol):
    """A limiter of either kind."""

    namespace: str
    store: Any

    def counts(self) -> Any:  # noqa: ANN401 - Counts, of a package beside this one
        """Return its counts."""

    @property
    def waiting(self) -> int:
        """The callers that wait."""

    @property
    def in_flight(self) -> int:
        """The callers that hold a permit."""

    @property
    def leased(self) -> int:
        """The tokens of leases that are not spent."""


Source = Edge | Limiter


def snapshot_of(sources: Iterable[Source]) -> Snapshot:
    """Return the snapshot of this process: what these edges and limiters have counted."""
    total = empty(time.time())
    total["started"] = STARTED
    stores: dict[int, StorePart] = {}
    for source in sources:
        if hasattr(source, "snapshot"):
            part = source.snapshot()
            total["rules"] += part["rules"]
            total["limiters"] += part["limiters"]
            total["stores"] += part["stores"]
            total["refused_keys"] += part["refused_keys"]
            total["busiest_keys"] += part["busiest_keys"]
            for name, floor in part["floors"].items():
                total["floors"][name] += floor
            total["policy"], total["namespace"] = part["policy"], part["namespace"]
        else:
            _add(total["limiters"], limiter_part(source))
            stores.setdefault(id(source.store), store_part("", source.store))
    total["stores"] += stores.values()
    return total


def limiter_part(limiter: Limiter) -> LimiterPart:
    """Return the part of a limiter."""
    return LimiterPart(
        namespace=limiter.namespace, counts=limiter.counts()._asdict(), in_flight=limiter.in_flight,
        waiting=limiter.waiting, lease_permits=limiter.leased,
    )  # fmt: skip


def limiter_parts(limiters: Iterable[Limiter]) -> list[LimiterPart]:
    """Return the parts of limiters: one for each namespace."""
    found: list[LimiterPart] = []
    for one in limiters:
        _add(found, limiter_part(one))
    return found


def _add(limiters: list[LimiterPart], part: LimiterPart) -> None:
    """Add a limiter; limiters of one namespace are one part."""
    for one in limiters:
        if one["namespace"] == part["namespace"]:
            one["counts"] = added(one["counts"], part["counts"])
            one["in_flight"] += part["in_flight"]
            one["waiting"] += part["waiting"]
            one["lease_permits"] += part["lease_permits"]
            return
    limiters.append(part)


def rule_part(namespace: str, name: str, limits: Iterable[Limit], counts: Iterable[int]) -> RulePart:
    """Return the part of a rule."""
    each = [LimitPart(text=str(one), amount=one.amount, period=one.period_us / 1e6) for one in limits]
    return RulePart(namespace=namespace, rule=name, limits=each, counts=dict(zip(RESULTS, counts, strict=True)))


def store_part(name: str, store: Any) -> StorePart:  # noqa: ANN401 - of any kind
    """Return the part of a store."""
    kind = type(store).__name__.removesuffix("Store").lower()
    up, errors, seconds = True, 0, None
    if hasattr(store, "health"):
        up, errors, seconds = store.health()
    return StorePart(
        name=name, kind=kind, up=up, errors=errors, degraded=not up, seconds=seconds,
        keys=store.keys() if hasattr(store, "keys") else None,
        evictions=store.evictions() if hasattr(store, "evictions") else None,
    )  # fmt: skip


def key_parts(watch: KeyWatch) -> Mapping[str, Any]:
    """Return the lists of keys, and their floors, as parts of a snapshot."""
    refused, refused_floor = watch.refused_keys()
    busiest, busiest_floor = watch.busiest_keys()
    return {
        "refused_keys": key_list(refused),
        "busiest_keys": key_list(busiest),
        "floors": {"refused": refused_floor, "busiest": busiest_floor},
    }


def key_list(each: list[Listed]) -> list[KeyPart]:
    """Return a list of keys as a part of a snapshot."""
    return [
        KeyPart(rule=one.rule, key=one.key, count=one.count, error=one.error, since=one.since)
        for one in each[:MOST_KEYS]
    ]
