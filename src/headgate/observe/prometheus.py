"""Metrics for Prometheus, by the library prometheus_client (extra `headgate[prometheus]`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from headgate.observe.metrics import METRICS, Metric, values
from headgate.observe.publish import Watched
from headgate.observe.published import NO_KEYS
from headgate.observe.snapshot_parts import Source
from headgate.wording import requiring

with requiring("headgate.observe.prometheus", "prometheus-client", "prometheus_client", extra="prometheus"):
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def export(*sources: Source, publish: str | Path | None = None, registry: Any = None) -> Collector:  # noqa: ANN401
    """Add the metrics of edges and limiters to a registry (by default the library's own), and return the collector.

    Several workers need `publish`, a directory in which each writes its counts once a second; whichever is scraped
    tells the sum. A registry takes one export: a second one raises `ValueError`.
    """
    registry = REGISTRY if registry is None else registry
    collector = Collector()
    registry.register(collector)  # first: a second export must not publish the same counts again
    try:
        collector.watched = Watched(sources, publish)
    except Exception:
        registry.unregister(collector)
        raise
    return collector


class Collector:
    """A collector over counts: nothing is done until a scrape."""

    def __init__(self) -> None:
        self.watched: Watched | None = None
        """What is told; None until it is known that the registry takes this collector."""

    def describe(self) -> Iterable[Any]:
        """Return the metrics without values: a registry refuses a second collector with the same names."""
        return map(_family, METRICS)

    def collect(self) -> Iterable[Any]:
        """Return every metric."""
        if self.watched is None:
            return
        for metric, samples, histograms in values(self.watched.snapshot(NO_KEYS)):
            family = _family(metric)
            for labels, buckets, total in histograms:
                family.add_metric(labels, list(buckets), total)
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family

    def close(self) -> None:
        """Publish no more."""
        if self.watched is not None:
            self.watched.close()


def _family(metric: Metric) -> Any:  # noqa: ANN401 - the library has no common type of its families
    return FAMILIES[metric.kind](metric.name, metric.text, labels=metric.labels)
