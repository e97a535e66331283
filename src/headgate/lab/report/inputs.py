"""The inputs of the figures: the command, the versions, the files of the log and the lines that could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.lab.logs import LogFacts
from headgate.lab.numbers import NOTHING, count, several
from headgate.lab.report.about import About
from headgate.lab.report.markup import Markup, joined, tag
from headgate.lab.report.parts import facts, section, table


def origin(about: About, log: LogFacts | None) -> Markup:
    """Return the section that tells how to have the same figures again."""
    pairs = [("Command", tag("code", about.command))]
    pairs += [] if about.seed is None else [("Seed", tag("code", str(about.seed)))]
    pairs += [("Made", joined(about.made)), *((name, joined(value)) for name, value in about.versions.items())]
    parts: list[Markup] = [facts(pairs)]
    if log is not None:
        parts += _log(log)
    return section("origin", "Where these figures come from", *parts)


def doubts(log: LogFacts | None) -> Iterator[str]:
    """Tell what the reader of any figure must know about the log."""
    if log is None:
        return
    if log.unreadable:
        yield f"{count(log.unreadable)} of {several(log.lines, 'line')} could not be read: not in any figure."
    if log.late:
        yield f"{several(log.late, 'request')} came too late to be sorted: not in any figure."
    if log.spread:
        yield "The stamps are whole seconds: the requests of a second were spread over it, in their order."
    if "key" in log.missing:
        yield "The log names no clients: all requests are counted as those of one."


def _log(log: LogFacts) -> Iterator[Markup]:
    head = ("file", "format", "stamps", "bytes", "SHA-256")
    rows = [
        (tag("bdi", each.name), each.format, each.stamps, count(each.bytes),
         tag("code", each.sha256) if each.sha256 else "not read to its end")
        for each in log.inputs
    ]  # fmt: skip
    yield tag("h3", "Inputs")
    yield table("Inputs", head, rows, words=(0, 1, 2, 4))
    yield tag(
        "p",
        f"{several(log.lines, 'line')}: {several(log.requests, 'request')}, {count(log.unreadable)} unreadable, "
        f"{count(log.late)} too late. Out of order: {several(log.out_of_order, 'line')}. "
        f"The log lacks: {', '.join(log.missing) or 'nothing'}.",
    )
    if log.bad_lines:
        bad = [(tag("bdi", each.name), count(each.number), each.reason, tag("code", tag("bdi", each.excerpt) if
                each.excerpt else NOTHING)) for each in log.bad_lines]  # fmt: skip
        yield tag("h3", "The first lines that could not be read")
        yield table("Unreadable lines", ("file", "line", "reason", "begins"), bad, words=(0, 2, 3))
