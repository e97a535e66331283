"""Snapshots of several processes, summed to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.observe.shedders import merged_shedders
from headgate.observe.snapshot import (
    MOST_KEYS,
    KeyPart,
    LimiterPart,
    RulePart,
    Snapshot,
    StorePart,
    added,
    empty,
)


def merged(parts: Sequence[Snapshot], now: float, dead: Sequence[Snapshot] = (), keys: bool = True) -> Snapshot:
    """Return the sum of the snapshots of workers; of the dead, only what grows is added. `keys`: with lists of keys."""
    total = empty(now)
    every = [*parts, *dead]
    if not every:
        total["workers"] = 0
        return total
    by_age = sorted(every, key=lambda one: one["policy"]["loaded_at"])
    newest = by_age[-1]
    total["started"] = min(one["started"] for one in every)
    total["workers"] = len(parts)
    total["namespace"] = newest["namespace"]
    total["policy"] = {
        **newest["policy"], "reload_failures": sum(one["policy"]["reload_failures"] for one in every),
    }  # fmt: skip
    total["rules"] = _rules(every, {one["namespace"]: one for one in by_age}.values())
    total["limiters"] = _limiters(parts, dead)
    total["shedders"] = merged_shedders(parts, dead)
    total["stores"] = _stores(parts, dead)
    for name in ("refused", "busiest") if keys else ():
        total[f"{name}_keys"], total["floors"][name] = _keys(every, name)  # type: ignore[literal-required]
    return total


def _rules(every: Iterable[Snapshot], newest: Iterable[Snapshot]) -> list[RulePart]:
    """Sum the counts of each rule; its limits are those of the newest policy of each namespace."""
    limits = {(rule["namespace"], rule["rule"]): rule["limits"] for part in newest for rule in part["rules"]}
    found: dict[tuple[str, str], RulePart] = {}
    for part in every:
        for rule in part["rules"]:
            name = (rule["namespace"], rule["rule"])
            total = found.get(name)
            if total is None:
                counts = {result: 0 + count for result, count in rule["counts"].items()}  # raises if one is no number
                found[name] = {**rule, "limits": limits.get(name, []), "counts": counts}
                continue
            counts = total["counts"]
            for result, count in rule["counts"].items():
                if count or result not in counts:  # most are zero
                    counts[result] = counts.get(result, 0) + count
    return list(found.values())


def _limiters(parts: Iterable[Snapshot], dead: Iterable[Snapshot]) -> list[LimiterPart]:
    found: dict[str, LimiterPart] = {}
    for alive, some in ((True, parts), (False, dead)):
        for one in (one for part in some for one in part["limiters"]):
            so_far = found.setdefault(
                one["namespace"],
                LimiterPart(namespace=one["namespace"], counts={}, in_flight=0, waiting=0, lease_permits=0),
            )
            so_far["counts"] = added(so_far["counts"], one["counts"])
            if alive:
                so_far["in_flight"] += one["in_flight"]
                so_far["waiting"] += one["waiting"]
                so_far["lease_permits"] += one["lease_permits"]
    return list(found.values())


def _stores(parts: Iterable[Snapshot], dead: Iterable[Snapshot]) -> list[StorePart]:
    """Merge stores: up if every process reaches it. Keys of private memory are summed; others are one store."""
    found: dict[tuple[str, str], StorePart] = {}
    for alive, some in ((True, parts), (False, dead)):
        for one in (one for part in some for one in part["stores"]):
            name = (one["name"], one["kind"])
            so_far = found.get(name)
            if so_far is None:
                gone: Any = {} if alive else {"up": True, "degraded": False, "keys": None}
                found[name] = {**one, **gone}
                continue
            so_far["errors"] += one["errors"]
            so_far["seconds"] = _seconds(so_far["seconds"], one["seconds"])
            private = one["kind"] == "memory"
            so_far["evictions"] = _both(so_far["evictions"], one["evictions"], private)
            if alive:
                so_far["up"] = so_far["up"] and one["up"]
                so_far["degraded"] = so_far["degraded"] or one["degraded"]
                so_far["keys"] = _both(so_far["keys"], one["keys"], private)
    return list(found.values())


def _both(one: int | None, other: int | None, private: bool) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other if private else max(one, other)


def _seconds(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    if one is None or other is None:
        return one if other is None else other
    buckets = [
        [bound, count + more] for (bound, count), (_, more) in zip(one["buckets"], other["buckets"], strict=True)
    ]
    return {"buckets": buckets, "sum": one["sum"] + other["sum"], "count": one["count"] + other["count"]}


def _keys(every: Sequence[Snapshot], name: str) -> tuple[list[KeyPart], int]:
    """Merge lists of keys. Where a key is not listed, it may have come as often as the floor there: an error."""
    floors = [part["floors"][name] for part in every]
    unlisted = sum(floors)
    found: dict[tuple[str, str], tuple[int, int, float]] = {}
    for part, floor in zip(every, floors, strict=True):
        rows: list[KeyPart] = part[f"{name}_keys"]  # type: ignore[literal-required]
        for one in rows:
            key = (one["rule"], one["key"])
            count, error, since = found.get(key) or (unlisted, unlisted, one["since"])
            found[key] = count + one["count"] - floor, error + one["error"] - floor, min(since, one["since"])
    listed = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    cut = listed[MOST_KEYS][1][0] if len(listed) > MOST_KEYS else 0
    each: list[KeyPart] = [
        {"rule": rule, "key": key, "count": count, "error": error, "since": since}
        for (rule, key), (count, error, since) in listed[:MOST_KEYS]
    ]
    return each, max(unlisted, cut)
