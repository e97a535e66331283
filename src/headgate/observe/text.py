"""The metrics as text, in the exposition format of Prometheus, without its library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.observe.metrics import values
from headgate.observe.snapshot import Snapshot


def exposition(seen: Snapshot) -> str:
    """Return a page for a scraper."""
    return "\n".join(_lines(seen)) + "\n"


def _lines(seen: Snapshot) -> Iterator[str]:
    for metric, samples, histograms in values(seen):
        yield f"# HELP {metric.name} {metric.text}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for labels, value in samples:
            yield f"{metric.name}{_labels(metric.labels, labels)} {_number(value)}"
        for labels, buckets, total in histograms:
            for bound, count in buckets:
                yield f"{metric.name}_bucket{_labels((*metric.labels, 'le'), (*labels, bound))} {_number(count)}"
            yield f"{metric.name}_count{_labels(metric.labels, labels)} {_number(buckets[-1][1])}"
            yield f"{metric.name}_sum{_labels(metric.labels, labels)} {_number(total)}"


def _labels(names: Sequence[str], given: Sequence[str]) -> str:
    each = (f'{name}="{_escaped(value)}"' for name, value in zip(names, given, strict=True))
    return "{" + ",".join(each) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(value)
