"""A comparison as text: the limits, the queues, and the clients that were refused most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headgate.lab.comparison.names import names, rate, same_numbers
from headgate.lab.comparison.results import Comparison, Measured, Wrong
from headgate.lab.numbers import NOTHING, multiple, period, several
from headgate.lab.text import about_log, instant, printed_key, share
from headgate.wording import columns

MEASURES: Final[dict[str, Callable[[Measured], Wrong | None]]] = {
    "same": lambda measured: measured.same_past,
    "own": lambda measured: measured.own_past,
    "offered": lambda measured: measured.offered,
}
"""The three ways to count wrong answers, by the name that the command line has for each."""
READING: Final = {
    "same": "Wrong: against an exact window over the requests that this limit itself has passed (same past).",
    "own": "Wrong: against an exact log that decides for itself from the first request on (own past).",
    "offered": "Wrong: the estimate of a window against the true number of requests, refused ones included (offered).",
}


def table(comparison: Comparison, wrong: str = "same") -> str:
    """Return the whole text; `wrong` is the measure of wrong answers to show."""
    parts = [_summary(comparison)]
    limits = [each for each in comparison.limits if each.waits is None]
    queues = [each for each in comparison.limits if each.waits is not None]
    if limits:
        parts.append("\n".join([*columns(_limit_rows(limits, wrong)), READING[wrong]]))
    if queues:
        parts.append("\n".join(columns(_queue_rows(queues))))
    parts += comparison.remarks
    parts += [_not_exact(each) for each in comparison.limits if each.forgotten]
    if comparison.refused_most:
        parts.append(_clients(comparison))
    return "\n\n".join(parts)


def _clients(comparison: Comparison) -> str:
    title = f"Refused most by {names(comparison.limits[:1])[0]}:"
    head = ("client", "first refusal", "last refusal", "requests", "refused", "errors")
    answered = comparison.log is not None and "status" not in comparison.log.missing
    rows = [(printed_key(each.key), instant(each.first), instant(each.last), f"{each.requests:,}", f"{each.refused:,}",
             share(each.errors, each.requests)) for each in comparison.refused_most]  # fmt: skip
    return "\n".join([title, *columns([row if answered else row[:-1] for row in (head, *rows)], words=3)])


def _summary(comparison: Comparison) -> str:
    text = f"{several(comparison.requests, 'request')} of {several(comparison.clients, 'client')}"
    if comparison.requests:
        text += f", {instant(comparison.first)} to {instant(comparison.last)} UTC"
    return text + (f"\n{about_log(comparison.log)}" if comparison.log else "")


def _limit_rows(measured: Sequence[Measured], wrong: str) -> list[tuple[str, ...]]:
    first = f"{rate(measured[0].limit)} by" if same_numbers(measured) else "limit"
    periods = {each.limit.period_us for each in measured}
    most = f"most in {period(periods.pop())}" if len(periods) == 1 else "most in a period"
    head = (first, "refused", "clients", most, "wrongly passed", "wrongly refused", "bytes", "ns")
    rows = zip(names(measured), measured, strict=True)
    return [head, *(_limit_row(name, each, MEASURES[wrong](each)) for name, each in rows)]


def _limit_row(name: str, measured: Measured, wrong: Wrong | None) -> tuple[str, ...]:
    above = f"{multiple(measured.above)} " if measured.above > 1 else ""
    counts = (NOTHING, NOTHING) if wrong is None else (f"{wrong.passed:,}", f"{wrong.refused:,}")
    return (name, f"{measured.refused:,}", f"{measured.clients:,}", f"{above}{measured.most:,}", *counts,
            f"{measured.bytes:,}", f"{measured.nanoseconds:,}")  # fmt: skip


def _queue_rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    head = ("queue", "dropped", "clients", "most in a period", "wait p50", "wait p99", "longest wait", "bytes", "ns")
    rows: list[tuple[str, ...]] = [head]
    for each in measured:
        waits = each.waits
        assert waits is not None  # noqa: S101 - only queues are given
        rows.append(
            (names([each])[0], f"{each.refused:,}", f"{each.clients:,}", f"{each.most:,}",
             *(f"{seconds:.3f} s" for seconds in (waits.median, waits.p99, waits.most)),
             f"{each.bytes:,}", f"{each.nanoseconds:,}")
        )  # fmt: skip
    return rows


def _not_exact(measured: Measured) -> str:
    return (
        f"{measured.limit}: the states of {several(measured.forgotten, 'client')} did not fit in memory, so that its "
        "figures are not exact. Replay fewer clients, or a smaller limit."
    )
