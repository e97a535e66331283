"""Plain-text tables, and targets with what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 110
UNKNOWN = "-"


class Table(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Target(NamedTuple):
    """A figure and the bound it is to keep: at most, or at least."""

    claim: str
    bound: float
    measured: float | None
    unit: str = "x"
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        kept = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        return "ok" if kept else "MISSED"


def number(value: float | None, unit: str = "", digits: int = 1) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}{unit}"


def ratio(value: float | None) -> str:
    return number(value, "x", 2 if value is not None and value < 10 else 1)


def render(table: Table) -> str:
    """The first column to the left, words to the left, figures to the right."""
    rows = [list(table.head), *map(list, table.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.head))]
    figures = [all(_is_figure(row[at]) for row in table.rows) for at in range(len(table.head))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("  " + "  ".join(map(_fill, row, widths, figures)).rstrip() for row in rows)


def _fill(cell: str, width: int, is_figure: bool) -> str:
    return cell.rjust(width) if is_figure else cell.ljust(width)


def _is_figure(cell: str) -> bool:
    return cell == UNKNOWN or cell[:1].isdigit() or cell[:1] == "-"


def paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="  ", subsequent_indent="  ")


def heading(text: str) -> str:
    return f"\n{text}\n{'=' * len(text)}"


def targets_table(targets: Sequence[Target]) -> Table:
    return Table(
        ("target", "bound", "measured", ""),
        [
            (
                target.claim,
                f"{'>=' if target.at_least else '<='} {target.bound:g} {target.unit}",
                number(target.measured, f" {target.unit}", 2),
                target.verdict,
            )
            for target in targets
        ],
    )
