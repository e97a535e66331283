"""The parts of load shedders in a snapshot: made from their numbers, and summed over processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.observe.snapshot import ShedPart, Snapshot, added

if TYPE_CHECKING:
    from headgate.shed import Stats


def shed_part(namespace: str, stats: Stats) -> ShedPart:
    """Return the part of a load shedder."""
    refused: dict[str, dict[str, int]] = {}
    for (request_class, reason), count in stats.refused.items():
        refused.setdefault(request_class, {})[reason] = count
    return ShedPart(
        namespace=namespace, limit=stats.limit, in_flight=stats.in_flight, waiting=stats.waiting,
        base_latency=stats.base_latency, latency=stats.latency, admitted=stats.admitted, refused=refused,
    )  # fmt: skip


def merged_shedders(parts: Iterable[Snapshot], dead: Iterable[Snapshot]) -> list[ShedPart]:
    """Sum the shedders of each namespace; of the dead, only what grows. The latencies are those of the slowest."""
    found: dict[str, ShedPart] = {}
    for alive, some in ((True, parts), (False, dead)):
        for one in (one for part in some for one in part["shedders"]):
            so_far = found.setdefault(one["namespace"], _none(one["namespace"]))
            so_far["admitted"] += one["admitted"]
            for request_class, reasons in one["refused"].items():
                so_far["refused"][request_class] = added(so_far["refused"].get(request_class, {}), reasons)
            if alive:
                so_far["limit"] += one["limit"]
                so_far["in_flight"] += one["in_flight"]
                so_far["waiting"] += one["waiting"]
                so_far["base_latency"] = max(so_far["base_latency"], one["base_latency"])
                so_far["latency"] = max(so_far["latency"], one["latency"])
    return list(found.values())


def _none(namespace: str) -> ShedPart:
    return ShedPart(
        namespace=namespace, limit=0, in_flight=0, waiting=0, base_latency=0.0, latency=0.0, admitted=0, refused={}
    )
