"""Snapshots of several processes, summed to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.observe.snapshot import MOST_KEYS, KeyPart, LimiterPart, RulePart, Snapshot, StorePart, added, empty


def merged(parts: Sequence[Snapshot], now: float, dead: Sequence[Snapshot] = ()) -> Snapshot:
    """Return the sum of the snapshots of workers; of the dead, only what grows is added."""
    total = empty(now)
    every = [*parts, *dead]
    if not every:
        return total
    newest = max(every, key=lambda one: one["policy"]["loaded_at"])
    total["started"] = min(one["started"] for one in every)
    total["workers"] = len(parts)
    total["namespace"] = newest["namespace"]
    total["policy"] = {
        **newest["policy"], "reload_failures": sum(one["policy"]["reload_failures"] for one in every),
    }  # fmt: skip
    total["rules"] = _rules(every, newest)
    total["limiters"] = _limiters(parts, dead)
    total["stores"] = _stores(parts, dead)
    for name in ("refused", "busiest"):
        total[f"{name}_keys"], total["floors"][name] = _keys(every, name)  # type: ignore[literal-required]
    return total


def _rules(every: Iterable[Snapshot], newest: Snapshot) -> list[RulePart]:
    """Sum the counts of each rule; its limits are those of the newest policy."""
    limits = {(rule["namespace"], rule["rule"]): rule["limits"] for rule in newest["rules"]}
    found: dict[tuple[str, str], RulePart] = {}
    for part in every:
        for rule in part["rules"]:
            name = (rule["namespace"], rule["rule"])
            so_far = found.get(name)
            counts = rule["counts"] if so_far is None else added(so_far["counts"], rule["counts"])
            found[name] = {**rule, "limits": limits.get(name, []), "counts": counts}
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
    lists = [{(one["rule"], one["key"]): one for one in part[f"{name}_keys"]} for part in every]  # type: ignore[literal-required]
    floors = [part["floors"][name] for part in every]
    found: list[KeyPart] = []
    for rule, key in {each for one in lists for each in one}:
        count = error = 0
        since = float("inf")
        for listed, floor in zip(lists, floors, strict=True):
            one = listed.get((rule, key))
            count += floor if one is None else one["count"]
            error += floor if one is None else one["error"]
            since = since if one is None else min(since, one["since"])
        found.append(KeyPart(rule=rule, key=key, count=count, error=error, since=since))
    found.sort(key=lambda one: (-one["count"], one["rule"], one["key"]))
    cut = found[MOST_KEYS]["count"] if len(found) > MOST_KEYS else 0
    return found[:MOST_KEYS], max(sum(floors), cut)
