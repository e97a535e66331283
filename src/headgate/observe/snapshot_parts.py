"""The parts of a snapshot that one process has: of an edge, of limiters, of stores."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from headgate.errors import InvalidCall
from headgate.limit import Limit
from headgate.observe.keys import KeyWatch
from headgate.observe.merging import merged
from headgate.observe.sketch import Listed
from headgate.observe.snapshot import (
    ALWAYS,
    BY_ACT,
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

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return what it has counted in this process, with its lists of keys or without."""


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


def checked(sources: Sequence[Source]) -> Sequence[Source]:
    """Raise `InvalidCall` for what cannot be watched: a scrape would fail later, far from the mistake."""
    for source in sources:
        if not (hasattr(source, "snapshot") or (hasattr(source, "counts") and hasattr(source, "namespace"))):
            raise InvalidCall(
                f"an object of type {type(source).__name__} cannot be watched: give a RateLimitMiddleware, the "
                "RateLimits of a framework, or a Limiter"
            )
    if not sources:
        raise InvalidCall("nothing to watch: give an edge or a limiter, as in export(limits)")
    return sources


def snapshot_of(sources: Iterable[Source], keys: bool = True) -> Snapshot:
    """Return the snapshot of this process: what these edges and limiters have counted."""
    return summed(
        [source.snapshot(keys) if hasattr(source, "snapshot") else _alone(source) for source in sources], keys
    )


def _alone(limiter: Limiter) -> Snapshot:
    """Return a snapshot of nothing but a limiter."""
    part = empty(time.time())
    part["limiters"], part["stores"] = [limiter_part(limiter)], [store_part("", limiter.store)]
    return part


def summed(parts: Iterable[Snapshot], keys: bool = True) -> Snapshot:
    """Return the snapshot of this process from those of its edges and limiters, which may use the same stores."""
    each, known = [], set[int]()
    for part in parts:
        each.append({**part, "stores": [one for one in part["stores"] if one["id"] not in known]})
        known.update(one["id"] for one in part["stores"])
    total = merged(cast("list[Snapshot]", each), time.time(), (), keys)
    total["started"], total["workers"] = STARTED, 1
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


def rule_part(namespace: str, name: str, limits: Iterable[Limit], counts: Iterable[int], act: str = "deny") -> RulePart:
    """Return the part of a rule, without the results that its `act` cannot have: they would be series of zeros."""
    each = [LimitPart(text=str(one), amount=one.amount, period=one.period_us / 1e6) for one in limits]
    told = (*ALWAYS, BY_ACT.get(act))
    by_result = {result: count for result, count in zip(RESULTS, counts, strict=True) if count or result in told}
    return RulePart(namespace=namespace, rule=name, limits=each, counts=by_result)


def store_part(name: str, store: Any) -> StorePart:  # noqa: ANN401 - of any kind
    """Return the part of a store."""
    kind = type(store).__name__.removesuffix("Store").lower()
    up, errors, seconds = True, 0, None
    if hasattr(store, "health"):
        up, errors, seconds = store.health()
    return StorePart(
        id=id(store), name=name, kind=kind, up=up, errors=errors, degraded=not up, seconds=seconds,
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
