"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.lab.comparison import Comparison
from headgate.lab.comparison.names import names as names_of
from headgate.lab.comparison.names import title
from headgate.lab.numbers import count, multiple, percent, period, several
from headgate.lab.report import figures, plots
from headgate.lab.report.about import About
from headgate.lab.report.inputs import doubts, origin
from headgate.lab.report.markup import Markup, tag
from headgate.lab.report.parts import notes, section, tiles
from headgate.lab.text import instant


def body(comparison: Comparison, about: About) -> Iterator[Markup]:
    """Yield the parts of the page."""
    names = names_of(comparison.limits)
    pairs = list(zip(comparison.limits, names, strict=True))
    limits = [pair for pair in pairs if pair[0].waits is None]
    queues = [pair for pair in pairs if pair[0].waits is not None]
    measured, shown = [each for each, _ in limits], [name for _, name in limits]
    yield tag("header", tag("p", "Headgate lab", class_="brand"), tag("h1", title(comparison.limits)),
              tag("p", _span(comparison), class_="lead"), _tiles(comparison, names))  # fmt: skip
    yield notes([*comparison.remarks, *doubts(comparison.log), *_not_exact(comparison, names)])
    if limits:
        yield section("figures", "Every figure", figures.limits(comparison, measured, shown))
    if queues:
        yield section("queues", "Queues", figures.queues(comparison, [each for each, _ in queues],
                                                         [name for _, name in queues]))  # fmt: skip
    if comparison.requests:
        yield plots.over_time(comparison.series, names, "Limit", comparison.limits[0].clients)
        if limits:
            yield plots.overshoot(measured, shown)
            yield plots.accuracy(comparison, measured, shown)
    if comparison.refused_most:
        yield section("clients", f"Refused most by {names[0]}", figures.refused_most(comparison.refused_most))
    yield origin(about, comparison.log)


def _span(comparison: Comparison) -> str:
    if not comparison.requests:
        return "No requests."
    log = comparison.log
    if log is None or log.first is None or log.last is None:
        return f"From {instant(comparison.series.start)} UTC on."
    return f"{instant(log.first)} to {instant(log.last)} UTC."


def _tiles(comparison: Comparison, names: list[str]) -> Markup:
    first, name = comparison.limits[0], names[0]
    facts = {
        "Requests": (count(comparison.requests), f"of {several(comparison.clients, 'client')}"),
        "Refused": (count(first.refused), f"{percent(first.refused, comparison.requests)}, by {name}"),
        "Clients refused": (count(first.clients), f"{percent(first.clients, comparison.clients)}, by {name}"),
    }
    worst, worst_name = max(zip(comparison.limits, names, strict=True), key=lambda pair: pair[0].above)
    if worst.most > worst.limit.amount:
        most = f"{count(worst.most)} in {period(worst.limit.period_us)}, by {worst_name}"
        facts["Most above the limit"] = (multiple(worst.above), most)
    return tiles(facts)


def _not_exact(comparison: Comparison, names: list[str]) -> Iterator[str]:
    for measured, name in zip(comparison.limits, names, strict=True):
        if measured.forgotten:
            yield (
                f"{name}: the states of {several(measured.forgotten, 'client')} did not fit in memory: its figures are "
                "not exact. Replay fewer clients, or a smaller limit."
            )
