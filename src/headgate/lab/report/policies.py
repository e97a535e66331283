"""The page of a policy that was replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.lab.numbers import NOTHING, count, percent, several
from headgate.lab.policies.results import Change, PolicyEffect, PolicyReplay, RuleEffect
from headgate.lab.report import plots
from headgate.lab.report.about import About
from headgate.lab.report.inputs import doubts, origin
from headgate.lab.report.markup import Markup, client, tag
from headgate.lab.report.parts import bar, notes, section, table, tiles
from headgate.lab.text import instant


def title(replay: PolicyReplay) -> str:
    """Return what was replayed."""
    return replay.new.name + (f" against {replay.old.name}" if replay.old else "")


def body(replay: PolicyReplay, about: About) -> Iterator[Markup]:
    """Yield the parts of the page."""
    lead = tag("p", *_span(replay), class_="lead")
    yield tag(
        "header", tag("p", "Headgate lab", class_="brand"), tag("h1", tag("bdi", title(replay))), lead, _tiles(replay)
    )
    effects = [("new", replay.new), *([("old", replay.old)] if replay.old else [])]
    yield notes([*doubts(replay.log), *(text for _, each in effects for text in _not_exact(each))])
    if replay.requests:
        yield plots.over_time(replay.series, plots.policy_names(replay), "Policy")
    for name, effect in effects:
        yield section(f"{name}-policy", f"{effect.name}, rule by rule", *_effect(effect, replay.requests))
    for name, heading, change in (
        ("refused", "Newly refused", replay.newly_refused), ("let-in", "Let in again", replay.let_in)
    ):  # fmt: skip
        if change is not None:
            yield section(name, heading, *_change(heading, change))
    skipped = {name: what for _, each in effects for name, what in each.skipped.items()}
    if skipped:
        yield section("skipped", "Not replayed", *_skipped(skipped))
    yield origin(about, replay.log)


def _span(replay: PolicyReplay) -> tuple[str, ...]:
    log = replay.log
    return () if log is None or log.first is None or log.last is None else (
        f"{instant(log.first)} to {instant(log.last)} UTC.",
    )  # fmt: skip


def _tiles(replay: PolicyReplay) -> Markup:
    new = replay.new
    facts = {
        "Requests": (count(replay.requests), f"of {several(replay.clients, 'client')}"),
        "Refused": (count(new.refused), f"{percent(new.refused, replay.requests)}, by {new.name}"),
    }
    for label, change in (("Newly refused", replay.newly_refused), ("Let in again", replay.let_in)):
        if change is not None:
            facts[label] = (count(change.requests), f"of {several(change.clients, 'client')}")
    return tiles(facts)


def _not_exact(effect: PolicyEffect) -> Iterator[str]:
    if effect.forgotten:
        yield f"{effect.name}: {several(effect.forgotten, 'key')} did not fit in memory: its figures are not exact."


def _effect(effect: PolicyEffect, requests: int) -> Iterator[Markup]:
    share = percent(effect.refused, requests)
    deny = f", {count(effect.denied)} of them by deny" if effect.denied else ""
    yield tag(
        "p",
        f"{count(effect.refused)} of {several(requests, 'request')} refused ({share}){deny}.",
    )
    head = ("rule", "limits", "matched", "", "refused", "share", "would be refused", "answered in place of the app",
            "delayed", "longest delay", "clients")  # fmt: skip
    most = max((each.refused for each in effect.rules), default=0)
    yield table(effect.name, head, [_rule(each, most) for each in effect.rules], words=(0, 1, 3))


def _rule(rule: RuleEffect, most: int) -> tuple[str, ...]:
    return (
        tag("bdi", rule.name), rule.limits, count(rule.matched), bar("refused", rule.refused, most),
        count(rule.refused), percent(rule.refused, rule.matched), count(rule.observed), count(rule.shadowed),
        count(rule.delayed), f"{rule.longest_delay:.3f} s" if rule.delayed else NOTHING, count(rule.clients),
    )  # fmt: skip


def _change(heading: str, change: Change) -> Iterator[Markup]:
    yield tag("p", f"{several(change.requests, 'request')} of {several(change.clients, 'client')}.")
    if not change.most:
        return
    head = ("client", "", heading.lower(), "of its requests", "share", "errors")
    most = max(each.changed for each in change.most)
    kind = "refused" if heading == "Newly refused" else "passed"
    rows = [
        (client(each.key), bar(kind, each.changed, most), count(each.changed), count(each.requests),
         percent(each.changed, each.requests), percent(each.errors, each.requests))
        for each in change.most
    ]  # fmt: skip
    yield table(heading, head, rows, words=(0, 1))


def _skipped(skipped: Mapping[str, str]) -> Iterator[Markup]:
    yield tag("p", "The log does not have what these parts of the policy need.")
    rows = [(tag("bdi", name), what) for name, what in skipped.items()]
    yield table("Not replayed", ("part", "needs"), rows, words=(0, 1))
