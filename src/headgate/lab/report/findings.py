"""The findings of the plots, in a sentence each: the same for readers that do not see the plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headgate.lab.comparison import MEASURES, Comparison, Measured, Series, Wrong
from headgate.lab.numbers import count, multiple, percent, period, several
from headgate.lab.text import instant


class Measure(NamedTuple):
    """One of the three ways to count wrong answers."""

    title: str
    meaning: str
    example: str


MEANINGS = {
    "same": Measure(
        "Same past",
        "An answer is wrong if an exact window over the requests that this limit itself has passed says otherwise.",
        "Example: at 60/minute a fixed window passes 60 requests at 12:00:59 and 60 more at 12:01:00. "
        "The second 60 are wrongly passed.",
    ),
    "own": Measure(
        "Own past",
        "An answer is wrong if an exact log, which decides for itself from the first request on, answers otherwise.",
        "Example: after these 120 requests, the fixed window refuses one at 12:01:59.5. The log refused the second 60, "
        "so that it has room: wrongly refused. By the same past it is right.",
    ),
    "offered": Measure(
        "Offered",
        "Windows only: a window counts all requests, refused ones too, and is wrong where its estimate is above the "
        "limit and the true number is not, or the reverse.",
        "Example: 60 requests at 12:00:00, 20 more at 12:01:10. The two-counter window estimates 50 + 20 of 60, "
        "the true number is 20: the last 10 are wrongly refused.",
    ),
}
"""The three ways to count wrong answers, by the names that `MEASURES` has for them."""


def over_time(series: Series, place: int, name: str, clients: int | None = None) -> str:
    """Tell how much one limit or policy refused, of how many clients where that is known, and when the most."""
    refused, requests = series.refused[place], sum(series.offered)
    if not any(refused):
        return f"{name} refused none of {several(requests, 'request')}."
    peak = max(range(len(refused)), key=refused.__getitem__)
    start = series.start + peak * series.width
    of_clients = "" if clients is None else f", of {several(clients, 'client')}"
    return (
        f"{name} refused {count(sum(refused))} of {several(requests, 'request')} "
        f"({percent(sum(refused), requests)}){of_clients}. "
        f"The most in one bin: {count(refused[peak])}, from {instant(start)} UTC on."
    )


def overshoot(measured: Sequence[Measured], names: Sequence[str]) -> str:
    """Tell which limit let the most pass, and which ones kept their amount."""
    pairs = list(zip(measured, names, strict=True))
    over = [pair for pair in pairs if pair[0].most > pair[0].limit.amount]
    kept = [name for each, name in pairs if each.most <= each.limit.amount]
    if not over:
        return "No limit let a client pass more than its amount in any period."
    worst, name = max(over, key=lambda pair: pair[0].above)
    text = (
        f"{name} let one client pass {count(worst.most)} in {period(worst.limit.period_us)}, "
        f"{multiple(worst.above)} its amount of {count(worst.limit.amount)}."
    )
    return f"{text} Never above: {', '.join(kept)}." if kept else text


def accuracy(comparison: Comparison, measured: Sequence[Measured], names: Sequence[str], measure: str) -> str:
    """Tell what the smallest state costs in wrong answers, and how small a state without any may be."""
    known = [
        (each, name, wrong) for each, name in zip(measured, names, strict=True) if (wrong := MEASURES[measure](each))
    ]
    if not known:
        return "No limit here has such figures."
    smallest, name, wrong = min(known, key=lambda row: row[0].bytes)
    text = (
        f"{name} needs {count(smallest.bytes)} bytes a client and answers {count(total(wrong))} of "
        f"{several(comparison.requests, 'request')} wrongly ({percent(total(wrong), comparison.requests)})."
    )
    right = [(each.bytes, name) for each, name, wrong in known if not total(wrong)]
    if right and total(wrong):
        text += f" {min(right)[1]} needs {count(min(right)[0])} and is never wrong."
    missing = [name for each, name in zip(measured, names, strict=True) if MEASURES[measure](each) is None]
    return f"{text} No figures: {', '.join(missing)}." if missing else text


def total(wrong: Wrong) -> int:
    """Return the number of wrong answers."""
    return wrong.passed + wrong.refused
