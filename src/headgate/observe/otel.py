"""Metrics for OpenTelemetry, by observable instruments (extra `headgate[otel]`): nothing is done until they are read.

The API has no observable histogram, and a recorded one would take time in each command. So three counters tell
`headgate_store_seconds`, as in Prometheus: `_bucket` with the bound `le`, `_count` and `_sum`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from headgate.observe.metrics import METRICS, Histogram, Metric, Sample, values
from headgate.observe.publish import Watched
from headgate.observe.published import NO_KEYS
from headgate.observe.snapshot_parts import Source
from headgate.wording import requiring

with requiring("headgate.observe.otel", "opentelemetry-api", "opentelemetry", extra="otel"):
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter

FRESH: Final = 1.0
"""Seconds for which the instruments of one collection share a snapshot."""
Rows = Iterable[tuple[Sequence[str], float]]
Tell = Callable[[Sequence[Sample], Sequence[Histogram]], Rows]


def export(*sources: Source, publish: str | Path | None = None, meter: Any = None) -> Watched:  # noqa: ANN401
    """Observe the metrics of edges and limiters by a meter (by default that of the global provider).

    With `publish`, each worker writes its counts there once a second, and each tells the sum: let one worker export.
    """
    watched = Watched(sources, publish)
    collection = Collection(watched)
    meter = get_meter("headgate") if meter is None else meter
    for metric in METRICS:
        create = meter.create_observable_gauge if metric.kind == "gauge" else meter.create_observable_counter
        for suffix, labels, tell in _series(metric):
            name = metric.name + suffix
            create(name, [_observer(collection, metric, name, labels, tell)], description=metric.text)
    return watched


class Collection:
    """One snapshot for all instruments of a collection: an instrument that asks again begins the next one."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._at = float("-inf")
        self._values: dict[Metric, tuple[Sequence[Sample], Sequence[Histogram]]] = {}

    def values(self, metric: Metric, name: str) -> tuple[Sequence[Sample], Sequence[Histogram]]:
        """Return the values of a metric for the instrument of this name."""
        with self._lock:
            if name in self._told or time.monotonic() > self._at + FRESH:
                seen = self._watched.snapshot(NO_KEYS)
                self._values = {each: (samples, histograms) for each, samples, histograms in values(seen)}
                self._told, self._at = set(), time.monotonic()
            self._told.add(name)
            return self._values[metric]


def _series(metric: Metric) -> Iterable[tuple[str, tuple[str, ...], Tell]]:
    """Yield the end of the name, the labels and the rows of each instrument of a metric."""
    if metric.kind != "histogram":
        yield "", metric.labels, lambda samples, _: samples
        return
    yield (
        "_bucket",
        (*metric.labels, "le"),
        lambda _, each: [((*labels, le), count) for labels, buckets, _ in each for le, count in buckets],
    )
    yield "_count", metric.labels, lambda _, each: [(labels, buckets[-1][1]) for labels, buckets, _ in each]
    yield "_sum", metric.labels, lambda _, each: [(labels, total) for labels, _, total in each]


def _observer(
    collection: Collection, metric: Metric, name: str, names: Sequence[str], tell: Tell
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        rows = tell(*collection.values(metric, name))
        return [Observation(value, dict(zip(names, labels, strict=True))) for labels, value in rows]

    return read
