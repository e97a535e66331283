"""`headgate overload`: estimators under overload, in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.errors import InvalidCall
from headgate.wording import shown, suggestion

if TYPE_CHECKING:
    from argparse import _SubParsersAction

READING = """\
goodput, as a part of what could be served; the 99th percentile of latency, as a multiple of the
same without load; seconds until nine of ten calls are answered in time again. An overload is held (*)
from 0.9, up to 3x and within 10 s. Medians of {seeds} seeds."""


def add_verbs(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    about = "overloads of a simulated service, with every estimator of a load shedder"
    verb = verbs.add_parser("overload", help=about, description=f"Run {about}, in virtual time.")
    verb.add_argument("scenario", nargs="*", help="one or several scenarios; without any, all of them")
    verb.add_argument("--estimator", action="append", help="only this one; may be given several times")
    verb.add_argument("--seeds", type=int, default=10, help="how often each scenario runs (10)")
    verb.add_argument("--list", action="store_true", help="list the scenarios")
    verb.set_defaults(verb=overload)


def overload(arguments: argparse.Namespace) -> str:
    """Return the text that `headgate overload` prints."""
    from headgate.lab.overload import MAKERS, SCENARIOS, table, trials

    if arguments.list:
        return "\n".join(f"{each.name:16} {each.about}" for each in SCENARIOS.values())
    scenarios = _chosen(arguments.scenario, SCENARIOS, "scenario")
    estimators = _chosen(arguments.estimator, MAKERS, "estimator")
    if arguments.seeds < 1:
        raise InvalidCall(f"--seeds is a number from 1; got {arguments.seeds}")
    results = {}
    for scenario, estimator, result in trials(scenarios, estimators, arguments.seeds):
        results[scenario, estimator] = result
        _progress(f"{len(results)} of {len(scenarios) * len(estimators)}: {scenario}, {estimator}")
    _progress("")
    return f"{table(results)}\n\n{READING.format(seeds=arguments.seeds)}"


def _chosen(names: list[str] | None, known: Mapping[str, object], kind: str) -> list[str]:
    for name in names or ():
        if name not in known:
            raise InvalidCall(f"unknown {kind} {shown(name)}: {suggestion(name, known)}")
    return names or list(known)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
