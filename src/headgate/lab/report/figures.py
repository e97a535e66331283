"""The figures of a comparison as tables: limits, queues, clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.lab.comparison import MEASURES, Comparison, Measured, RefusedClient, Waits, Wrong
from headgate.lab.numbers import NOTHING, count, multiple, percent, period
from headgate.lab.report.findings import MEANINGS
from headgate.lab.report.markup import Markup, client, joined, tag
from headgate.lab.report.parts import BAR, bar, body_row, boxed, table
from headgate.lab.text import instant

WORDS: Final = (0,)


def limits(comparison: Comparison, measured: Sequence[Measured], names: Sequence[str]) -> Markup:
    """Return every figure of the limits that do not queue."""
    periods = {period(each.limit.period_us) for each in measured}
    most = f"most in {periods.pop()}" if len(periods) == 1 else "most in its period"
    groups = [("", 1), ("refused", 3), (most, 2), *((each.title.lower(), 2) for each in MEANINGS.values()), ("cost", 2)]
    above = [tag("th", title, colspan=width, scope="colgroup") for title, width in groups]
    inner = ("limit", "requests", "share", "clients", "units", "of limit", *("wrongly passed", "wrongly refused") * 3)
    below = [tag("th", each, scope="col", class_="num" if at else None)
             for at, each in enumerate((*inner, "bytes a client", "ns a decision"))]  # fmt: skip
    rows = [body_row(_limit(comparison, each, name), WORDS) for each, name in zip(measured, names, strict=True)]
    return boxed("Every figure of every limit", joined(tag("tr", *above, class_="groups"), tag("tr", *below)), rows)


def _limit(comparison: Comparison, measured: Measured, name: str) -> list[str]:
    wrong = [cell for measure in MEANINGS for cell in _wrong(MEASURES[measure](measured))]
    return [
        name,
        count(measured.refused),
        percent(measured.refused, comparison.requests),
        count(measured.clients),
        count(measured.most),
        _above(measured),
        *wrong,
        count(measured.bytes),
        count(measured.nanoseconds),
    ]


def _above(measured: Measured) -> Markup:
    """Return the multiple of the amount, with a mark where it is above 1."""
    text = multiple(measured.above)
    return tag("span", text, class_="over") if measured.most > measured.limit.amount else tag("span", text)


def _wrong(wrong: Wrong | None) -> tuple[str, str]:
    return (NOTHING, NOTHING) if wrong is None else (count(wrong.passed), count(wrong.refused))


def queues(comparison: Comparison, measured: Sequence[Measured], names: Sequence[str]) -> Markup:
    """Return the queues: what they dropped, and how long they held the rest."""
    head = ("queue", "dropped", "share", "clients", "most in a period", "half waited at most", "99 % waited at most",
            "longest wait", "waits", "bytes", "ns")  # fmt: skip
    longest = max((each.waits.most for each in measured if each.waits), default=0.0)
    rows = [
        (name, count(each.refused), percent(each.refused, comparison.requests), count(each.clients),
         f"{count(each.most)} in {period(each.limit.period_us)}", *_waits(each.waits, longest),
         count(each.bytes), count(each.nanoseconds))
        for each, name in zip(measured, names, strict=True)
    ]  # fmt: skip
    return table("Queues", head, rows, words=(0, 8))


def _waits(waits: Waits | None, longest: float) -> tuple[str, ...]:
    """Return the waits as numbers, and as a bar with three steps."""
    if waits is None:
        return (NOTHING,) * 4
    steps = [(waits.most, 2, 4), (waits.p99, 6, 2), (waits.median, 10, 0)]
    rects = [
        tag("rect", y=top, width=f"{BAR * wait / longest if longest else 0:.1f}", height=height, class_="passed")
        for wait, height, top in steps
    ]
    drawn = tag("svg", *rects, class_="bar", viewBox=f"0 0 {BAR} 10", preserveAspectRatio="none", aria_hidden="true")
    return (*(f"{each:.3f} s" for each in (waits.median, waits.p99, waits.most)), drawn)


def refused_most(clients: Sequence[RefusedClient]) -> Markup:
    """Return the clients that the first limit refused most, a bar for each."""
    head = ("client", "", "refused", "of its requests", "share", "first refusal (UTC)", "last refusal (UTC)", "errors")
    most = max(each.refused for each in clients)
    rows = [
        (client(each.key), bar("refused", each.refused, most), count(each.refused), count(each.requests),
         percent(each.refused, each.requests), instant(each.first), instant(each.last),
         percent(each.errors, each.requests))
        for each in clients
    ]  # fmt: skip
    return table("Clients refused most", head, rows, words=(0, 1))
