"""Metrics for Prometheus, by the library prometheus_client (extra `headgate[prometheus]`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headgate.observe.metrics import values
from headgate.observe.publish import Watched
from headgate.observe.published import NO_KEYS
from headgate.observe.snapshot_parts import Source
from headgate.wording import requiring

with requiring("headgate.observe.prometheus", "prometheus-client", "prometheus_client", extra="prometheus"):
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily


def export(*sources: Source, publish: str | Path | None = None, registry: Any = None) -> Collector:  # noqa: ANN401
    """Add the metrics of edges and limiters to a registry (by default the library's own), and return the collector.

    Several workers need `publish`, a directory in which each writes its counts once a second; whichever is scraped
    tells the sum.
    """
    collector = Collector(Watched(sources, publish))
    (REGISTRY if registry is None else registry).register(collector)
    return collector


class Collector:
    """A collector over counts: nothing is done until a scrape."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def describe(self) -> Iterable[Any]:
        """Return nothing: a registry need not collect when the collector is registered."""
        return []

    def collect(self) -> Iterable[Any]:
        """Return every metric."""
        for metric, samples, histograms in values(self.watched.snapshot(NO_KEYS)):
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
                for labels, buckets, total in histograms:
                    histogram.add_metric(labels, list(buckets), total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=metric.labels)
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family

    def close(self) -> None:
        """Publish no more."""
        self.watched.close()
