"""What an edge has counted in this process, as a snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headgate.observe import LimiterPart, Snapshot, empty, key_parts, rule_part, store_part
from headgate.policy.edges import IN_FLIGHT, NO_COUNTS, WAITING

if TYPE_CHECKING:
    from headgate.web.runtime import Runtime


def snapshot_of(runtime: Runtime[Any]) -> Snapshot:
    """Return the snapshot of an edge."""
    policy, file = runtime.policy, runtime.policy_file
    counts, namespace = dict(runtime.counts.values()), policy.namespace
    total = empty(time.time(), namespace)
    total["policy"] = {
        "file": None if file.path is None else file.path.name,
        "loaded_at": file.loaded_at,
        "reload_failures": file.failures,
    }
    for rule in policy.every_rule:
        limits = (rule.plans or {}).get("default", ())
        total["rules"].append(rule_part(namespace, rule.name, limits, counts.pop(rule.name, NO_COUNTS)))
    total["rules"] += [rule_part(namespace, name, (), each) for name, each in counts.items()]
    gauges = runtime.counts.gauges.values()
    total["limiters"] = [
        LimiterPart(
            namespace=namespace, counts={}, in_flight=gauges[IN_FLIGHT], waiting=gauges[WAITING], lease_permits=0
        )
    ]
    total["stores"] = [store_part(name, store) for name, store in runtime.stores().items()]
    total.update(key_parts(runtime.watch))  # type: ignore[typeddict-item]
    return total
