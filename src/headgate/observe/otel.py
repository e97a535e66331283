"""Metrics for OpenTelemetry, by observable instruments (extra `headgate[otel]`): nothing is done until they are read.

A histogram cannot be observed, so `headgate_store_seconds` is told by two counters, its `_count` and its `_sum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headgate.errors import InvalidCall
from headgate.observe.metrics import METRICS, Metric, values
from headgate.observe.parts import Source
from headgate.observe.publish import Watched

try:
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter
except ImportError as missing:  # pragma: no cover
    raise InvalidCall("metrics for OpenTelemetry need its API: pip install 'headgate[otel]'") from missing

Read = Callable[[CallbackOptions], Iterable[Observation]]


def export(*sources: Source, publish: str | Path | None = None, meter: Any = None) -> Watched:  # noqa: ANN401
    """Observe the metrics of edges and limiters by a meter (by default that of the global provider).

    With `publish`, each worker writes its counts there once a second, and each tells the sum: let one worker export.
    """
    watched = Watched(sources, publish)
    meter = get_meter("headgate") if meter is None else meter
    for metric in METRICS:
        if metric.kind == "histogram":
            for part in ("count", "sum"):
                meter.create_observable_counter(
                    f"{metric.name}_{part}", [_histogram(watched, metric, part)], description=metric.text
                )
        elif metric.kind == "counter":
            meter.create_observable_counter(metric.name, [_samples(watched, metric)], description=metric.text)
        else:
            meter.create_observable_gauge(metric.name, [_samples(watched, metric)], description=metric.text)
    return watched


def _samples(watched: Watched, metric: Metric) -> Read:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        samples = next(samples for each, samples, _ in values(watched.snapshot()) if each is metric)
        return [Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in samples]

    return read


def _histogram(watched: Watched, metric: Metric, part: str) -> Read:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        found = next(histograms for each, _, histograms in values(watched.snapshot()) if each is metric)
        return [
            Observation(buckets[-1][1] if part == "count" else total, dict(zip(metric.labels, labels, strict=True)))
            for labels, buckets, total in found
        ]

    return read
