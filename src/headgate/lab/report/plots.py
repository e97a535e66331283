"""The data of the plots, and the places in the page where the script draws them."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.clock import SECOND
from headgate.lab.comparison import MEASURES, Comparison, Measured, Series
from headgate.lab.numbers import count, duration, multiple, period
from headgate.lab.policies.results import PolicyReplay
from headgate.lab.report import findings
from headgate.lab.report.markup import Markup, tag
from headgate.lab.report.parts import choice, radio, section


def data(comparison: Comparison, names: Sequence[str]) -> dict[str, object]:
    """Return the numbers and texts that the script needs, plain enough for JSON."""
    series = comparison.series
    asked = [pair for pair in zip(comparison.limits, names, strict=True) if pair[0].waits is None]
    measured, shown = [each for each, _ in asked], [name for _, name in asked]
    return {
        "start": series.start / SECOND,
        "width": series.width / SECOND,
        "offered": series.offered,
        "requests": comparison.requests,
        "limits": [
            {"name": name, "compared": each.waits is None, "amount": each.limit.amount, "bytes": each.bytes,
             "period": period(each.limit.period_us), "refused": refused, "above": above, "wrong": _wrong(each),
             "finding": findings.over_time(series, place, name, each.clients)}
            for place, (each, name, refused, above) in enumerate(
                zip(comparison.limits, names, series.refused, series.above, strict=True))
        ],
        "findings": {each: findings.accuracy(comparison, measured, shown, each) for each in MEASURES},
    }  # fmt: skip


def policy_data(replay: PolicyReplay) -> dict[str, object]:
    """Return the same for one policy or two: only their counts over time, since no exact window is like a policy."""
    series = replay.series
    return {
        "start": series.start / SECOND,
        "width": series.width / SECOND,
        "offered": series.offered,
        "limits": [
            {"name": name, "compared": False, "refused": refused, "finding": findings.over_time(series, place, name)}
            for place, (name, refused) in enumerate(zip(policy_names(replay), series.refused, strict=True))
        ],
    }  # fmt: skip


def policy_names(replay: PolicyReplay) -> list[str]:
    """Return the names of the new policy and, if there is one, of the old one."""
    return [each.name for each in (replay.new, replay.old) if each is not None]


def over_time(series: Series, names: Sequence[str], label: str, clients: int | None = None) -> Markup:
    """Return the place of the first plot: what passed and what was refused, by one limit or policy at a time.

    The clients are those that the first one refused.
    """
    return section(
        "time", "Passed and refused over time",
        choice("limit", label, names) if len(names) > 1 else Markup(),
        _figure("time", findings.over_time(series, 0, names[0], clients),
                tag("div", **_steered("time", f"Requests in bins of {duration(series.width)}")),
                _keys(passed="passed, upwards", refused="refused, downwards"), _readout("time")),
    )  # fmt: skip


def overshoot(measured: Sequence[Measured], names: Sequence[str]) -> Markup:
    """Return the places of the second plot: a strip for each limit, with the same scale."""
    strips = [
        tag("div", tag("p", tag("b", name), tag("span", _most(each))), tag("div", class_="strip"), class_="row")
        for each, name in zip(measured, names, strict=True)
    ]
    return section(
        "overshoot", "Above the limit",
        tag("p", "The most that one client passed in a period, as a multiple of the amount."),
        _figure("overshoot", findings.overshoot(measured, names),
                tag("div", *strips, **_steered("overshoot", "Units of one client above the limit")),
                _keys(above="above the limit", line="limit"), _readout("overshoot")),
    )  # fmt: skip


def accuracy(comparison: Comparison, measured: Sequence[Measured], names: Sequence[str]) -> Markup:
    """Return the place of the third plot, and the three measures of wrong answers to choose from."""
    cards = [
        tag("label", radio("measure", name, name == "same"), tag("b", each.title), tag("span", each.meaning),
            tag("em", each.example))
        for name, each in findings.MEANINGS.items()
    ]  # fmt: skip
    return section(
        "accuracy", "Accuracy against memory",
        tag("fieldset", tag("legend", "What counts as a wrong answer"), *cards, class_="cards"),
        _figure("accuracy", findings.accuracy(comparison, measured, names, "same"),
                tag("div", class_="plot", id="accuracy-plot", role="img", aria_describedby="accuracy-finding",
                    aria_label="Wrong answers against bytes a client"),
                _keys(above="wrongly passed", refused="wrongly refused")),
    )  # fmt: skip


def _keys(**meanings: str) -> Markup:
    """Return what each colour means."""
    return tag("p", *(tag("span", text, class_=f"key {name}") for name, text in meanings.items()), class_="keys")


def _readout(name: str) -> Markup:
    """Return the place that tells the numbers under the cursor."""
    return tag("output", id=f"{name}-readout", class_="readout")


def _steered(name: str, label: str) -> dict[str, str | int]:
    """Return the attributes of a plot in which arrow keys move the cursor."""
    return {"class_": "plot", "id": f"{name}-plot", "role": "group", "tabindex": 0,
            "aria_label": f"{label}. Arrow keys move through time.", "aria_describedby": f"{name}-finding"}  # fmt: skip


def _figure(name: str, finding: str, plot: Markup, *above: Markup) -> Markup:
    """Return a plot under its finding, which the script changes with the choice."""
    caption = tag("figcaption", finding, id=f"{name}-finding", class_="finding", aria_live="polite")
    return tag("figure", caption, tag("div", *above, class_="above-plot scripted"), plot)


def _most(measured: Measured) -> str:
    if measured.most <= measured.limit.amount:
        return "never above"
    return f"{count(measured.most)} in {period(measured.limit.period_us)}, {multiple(measured.above)}"


def _wrong(measured: Measured) -> dict[str, tuple[int, int] | None]:
    found = {name: measure(measured) for name, measure in MEASURES.items()}
    return {name: None if wrong is None else (wrong.passed, wrong.refused) for name, wrong in found.items()}
