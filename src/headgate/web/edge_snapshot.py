"""The counts of an edge in this process, as a snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headgate.limit import Limit
from headgate.observe import LimiterPart, Snapshot, empty, key_parts, rule_part, shed_part, store_part
from headgate.policy.edges import DEFAULT_PLAN, IN_FLIGHT, NO_COUNTS, WAITING

if TYPE_CHECKING:
    from headgate.web.runtime import Runtime


def _limits_of_endpoints(runtime: Runtime[Any]) -> dict[str, dict[Limit, None]]:
    """Return the limits of each rule at an endpoint that was requested; endpoints may have rules of one name."""
    found: dict[str, dict[Limit, None]] = {}
    for _, responder in runtime.fast_paths_at.opened():
        for rule in responder.compiled.policy.rules:
            found.setdefault(rule.name, {}).update(dict.fromkeys((rule.plans or {}).get(DEFAULT_PLAN, ())))
    return found


def snapshot_of(runtime: Runtime[Any], keys: bool = True) -> Snapshot:
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
        limits = (rule.plans or {}).get(DEFAULT_PLAN, ())
        total["rules"].append(rule_part(namespace, rule.name, limits, counts.pop(rule.name, NO_COUNTS), rule.act.kind))
    limits_of = _limits_of_endpoints(runtime)
    total["rules"] += [rule_part(namespace, name, limits_of.get(name, ()), each) for name, each in counts.items()]
    gauges = runtime.counts.gauges.values()
    total["limiters"] = [
        LimiterPart(
            namespace=namespace, counts={}, in_flight=gauges[IN_FLIGHT], waiting=gauges[WAITING], lease_permits=0
        )
    ]
    if runtime.shedder is not None:
        total["shedders"] = [shed_part(namespace, runtime.shedder.stats())]
    total["stores"] = [store_part(name, store) for name, store in runtime.stores().items()]
    if keys:
        total.update(key_parts(runtime.watch))  # type: ignore[typeddict-item]
    return total
