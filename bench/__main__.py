"""`python -m bench`: run the sections, print tables and targets. A missed target is no failure; false work is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.compare import compare
from bench.harness import run_all
from bench.jobs import QUICK, Job, Results, Scale
from bench.report import Target, heading, paragraph, render, targets_table
from bench.sections import SECTIONS, Section

MEASURED = """Each contestant runs in processes of its own, once a round, and the best of all repeats counts. A figure
is the time of one turn of `for _ in repeat(None, n): answer = CALL`; nothing is subtracted. The garbage collector is
off in timed runs, as in timeit. Before it is timed every contestant has to admit the first 20 of 25 quick hits on a
limit of 20 and no other, and the last answer of every timed run is checked."""


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    if options.compare:
        print(compare(*options.compare))
        return 0
    scale = QUICK if options.quick else Scale()
    chosen = [section for section in SECTIONS if not options.only or section.name in options.only]
    facts = machine.describe()
    results = run_all(jobs_of(chosen, scale), scale)
    targets = [target for section in chosen for target in section.targets(results, scale)]
    show(facts, chosen, results, scale, targets)
    if options.plot:
        draw(options.plot, chosen, results, scale)
    if options.json:
        options.json.write_text(json.dumps(as_json(facts, scale, results, targets), indent=1) + "\n")
    return complain(results)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: short, noisy, fewer keys")
    parser.add_argument(
        "--only", action="append", choices=[section.name for section in SECTIONS], help="one section, or several"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="save every figure of every round")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="compare the ratios of two saved runs"
    )
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write the plots of the sections there, as SVG")
    return parser.parse_args(argv)


def jobs_of(sections: Sequence[Section], scale: Scale) -> list[Job]:
    """Sections share contestants; each is run once a round."""
    return list(dict.fromkeys(job for section in sections for job in section.jobs(scale)))


def show(
    facts: dict[str, str], sections: Sequence[Section], results: Results, scale: Scale, targets: Sequence[Target]
) -> None:
    print(heading("headgate bench"))
    for name, value in facts.items():
        print(f"  {name:<9} {value}")
    print(f"\n{paragraph(MEASURED)}")
    for section in sections:
        print(heading(section.title))
        print(f"{paragraph(section.note)}\n")
        print("\n\n".join(render(table) for table in section.tables(results, scale)))
    if targets:
        print(heading("targets"))
        print(render(targets_table(targets)))


def draw(directory: Path, sections: Sequence[Section], results: Results, scale: Scale) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for name, svg in section.plots(results, scale).items():
            (directory / name).write_text(svg)
            print(f"  drawn: {directory / name}")


def as_json(facts: dict[str, str], scale: Scale, results: Results, targets: Sequence[Target]) -> dict[str, object]:
    return {
        "machine": facts,
        "scale": scale._asdict(),
        "jobs": [{**job._asdict(), "rounds": rounds} for job, rounds in results.rounds.items()],
        "targets": [{**target._asdict(), "verdict": target.verdict} for target in targets],
    }


def complain(results: Results) -> int:
    for reason in results.complaints("missing"):
        print(f"not measured: {reason}", file=sys.stderr)
    failed = results.complaints("failed")
    for reason in failed:
        print(f"FALSE WORKLOAD: {reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
