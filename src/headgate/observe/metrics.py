"""The metrics, one list of names for every sink. A label is never a key, a path or an address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from headgate.observe.snapshot import Snapshot

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A metric: its name, its kind, what it says, and the names of its labels."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]


class Sample(NamedTuple):
    """A value of a metric."""

    labels: tuple[str, ...]
    value: float


class Histogram(NamedTuple):
    """The buckets of a histogram: upper bounds and counts, summed from below; and the sum of all values."""

    labels: tuple[str, ...]
    buckets: tuple[tuple[str, float], ...]
    total: float


RULE: Final = ("namespace", "rule")
STORE: Final = ("store", "kind")
LIMITER: Final = "(limiter)"
"""The label `rule` of decisions of a limiter, which has no rules."""
DECISIONS: Final = Metric("headgate_decisions_total", "counter", "Decisions, by rule and result.", (*RULE, "result"))
LIMIT: Final = Metric("headgate_limit", "gauge", "The amount of each limit of a rule.", (*RULE, "limit"))
PERIOD: Final = Metric("headgate_limit_period_seconds", "gauge", "The period of each limit.", (*RULE, "limit"))
STORE_SECONDS: Final = Metric("headgate_store_seconds", "histogram", "The time of commands to a server.", STORE)
STORE_UP: Final = Metric("headgate_store_up", "gauge", "1 if the store can answer, 0 if it is away.", STORE)
STORE_ERRORS: Final = Metric("headgate_store_errors_total", "counter", "Commands without an answer.", STORE)
STORE_KEYS: Final = Metric("headgate_store_keys", "gauge", "Keys in the tables of a store.", STORE)
STORE_EVICTIONS: Final = Metric(
    "headgate_store_evictions_total", "counter", "Keys dropped while they had quota in use.", STORE
)
IN_FLIGHT: Final = Metric("headgate_in_flight", "gauge", "Callers that hold a permit.", ("namespace",))
WAITING: Final = Metric("headgate_waiting", "gauge", "Callers that wait.", ("namespace",))
LEASES: Final = Metric("headgate_lease_permits", "gauge", "Tokens of leases that are not spent.", ("namespace",))
LOADED: Final = Metric("headgate_policy_loaded_timestamp_seconds", "gauge", "When the policy was read.", ("namespace",))
FAILURES: Final = Metric(
    "headgate_policy_reload_failures_total", "counter", "Reloads that left the policy as it was.", ("namespace",)
)
SHED_LIMIT: Final = Metric("headgate_shed_limit", "gauge", "Requests that load shedders admit at once.", ("namespace",))
SHED_IN_FLIGHT: Final = Metric("headgate_shed_in_flight", "gauge", "Requests that are served.", ("namespace",))
SHED_WAITING: Final = Metric("headgate_shed_waiting", "gauge", "Requests that wait to be served.", ("namespace",))
SHED_BASE: Final = Metric(
    "headgate_shed_base_latency_seconds", "gauge", "The time of a request when none waits.", ("namespace",)
)
SHED_LATENCY: Final = Metric("headgate_shed_latency_seconds", "gauge", "The time of a request now.", ("namespace",))
SHED_ADMITTED: Final = Metric("headgate_shed_admitted_total", "counter", "Requests that were served.", ("namespace",))
SHED_REFUSED: Final = Metric(
    "headgate_shed_refused_total", "counter", "Requests that were not, by reason.", ("namespace", "class", "reason")
)
METRICS: Final = (
    DECISIONS, LIMIT, PERIOD, STORE_SECONDS, STORE_UP, STORE_ERRORS, STORE_KEYS, STORE_EVICTIONS, IN_FLIGHT, WAITING,
    LEASES, SHED_LIMIT, SHED_IN_FLIGHT, SHED_WAITING, SHED_BASE, SHED_LATENCY, SHED_ADMITTED, SHED_REFUSED,
    LOADED, FAILURES,
)  # fmt: skip


def values(seen: Snapshot) -> Iterator[tuple[Metric, list[Sample], list[Histogram]]]:
    """Return every metric with its values: samples, or histograms."""
    found: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
    for metric, labels, value in (*_rules(seen), *_stores(seen), *_limiters(seen), *_shedders(seen), *_policy(seen)):
        found[metric].append(Sample(labels, value))
    for metric, samples in found.items():
        yield metric, samples, list(_histograms(seen)) if metric is STORE_SECONDS else []


Row = tuple[Metric, tuple[str, ...], float]


def _rules(seen: Snapshot) -> Iterable[Row]:
    for rule in seen["rules"]:
        labels = (rule["namespace"], rule["rule"])
        for result, count in rule["counts"].items():
            yield DECISIONS, (*labels, result), count
        for limit in rule["limits"]:
            yield LIMIT, (*labels, limit["text"]), limit["amount"]
            yield PERIOD, (*labels, limit["text"]), limit["period"]


def _stores(seen: Snapshot) -> Iterable[Row]:
    for store in seen["stores"]:
        labels = (store["name"], store["kind"])
        yield STORE_UP, labels, int(store["up"])
        yield STORE_ERRORS, labels, store["errors"]
        if store["keys"] is not None:
            yield STORE_KEYS, labels, store["keys"]
        if store["evictions"] is not None:
            yield STORE_EVICTIONS, labels, store["evictions"]


def _histograms(seen: Snapshot) -> Iterable[Histogram]:
    for store in seen["stores"]:
        if store["seconds"] is not None:
            total, buckets = 0, []
            for bound, count in store["seconds"]["buckets"]:
                total += count
                buckets.append(("+Inf" if bound is None else repr(float(bound)), float(total)))
            yield Histogram((store["name"], store["kind"]), tuple(buckets), store["seconds"]["sum"])


def _limiters(seen: Snapshot) -> Iterable[Row]:
    for one in seen["limiters"]:
        labels = (one["namespace"],)
        for result, count in one["counts"].items():
            if result != "degraded":  # these are among the others
                yield DECISIONS, (one["namespace"], LIMITER, result), count
        yield IN_FLIGHT, labels, one["in_flight"]
        yield WAITING, labels, one["waiting"]
        yield LEASES, labels, one["lease_permits"]


def _shedders(seen: Snapshot) -> Iterable[Row]:
    for one in seen["shedders"]:
        labels = (one["namespace"],)
        yield SHED_LIMIT, labels, one["limit"]
        yield SHED_IN_FLIGHT, labels, one["in_flight"]
        yield SHED_WAITING, labels, one["waiting"]
        yield SHED_BASE, labels, one["base_latency"]
        yield SHED_LATENCY, labels, one["latency"]
        yield SHED_ADMITTED, labels, one["admitted"]
        for request_class, reasons in one["refused"].items():
            for reason, count in reasons.items():
                yield SHED_REFUSED, (*labels, request_class, reason), count


def _policy(seen: Snapshot) -> Iterable[Row]:
    if seen["policy"]["loaded_at"]:
        yield LOADED, (seen["namespace"],), seen["policy"]["loaded_at"]
        yield FAILURES, (seen["namespace"],), seen["policy"]["reload_failures"]
