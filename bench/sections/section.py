"""What a section is: the jobs it needs, the tables it shows, the targets it checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.jobs import Job, Results, Scale
from bench.report import Table, Target


class Section(NamedTuple):
    name: str
    title: str
    note: str
    jobs: Callable[[Scale], list[Job]]
    tables: Callable[[Results, Scale], list[Table]]
    targets: Callable[[Results, Scale], list[Target]]


def timed(*contestants: str) -> list[Job]:
    return [Job("time", contestant) for contestant in contestants]
