"""What a section is: the jobs it needs, the tables it shows, the targets it checks, the plots it can draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.jobs import Job, Results, Scale
from bench.report import Table, Target


def no_plots(results: Results, scale: Scale) -> dict[str, str]:
    return {}


class Section(NamedTuple):
    name: str
    title: str
    note: str
    jobs: Callable[[Scale], list[Job]]
    tables: Callable[[Results, Scale], list[Table]]
    targets: Callable[[Results, Scale], list[Target]]
    plots: Callable[[Results, Scale], dict[str, str]] = no_plots
    """SVG by file name."""


def timed(*contestants: str) -> list[Job]:
    return [Job("time", contestant) for contestant in contestants]
