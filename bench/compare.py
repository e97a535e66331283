"""`python -m bench --compare BEFORE AFTER`: the ratios of two runs side by side, as a page in Markdown.

Only ratios within a run are compared: both of their parts ran on the same machine at the same time, so that a slower
machine changes neither. Nanoseconds of two runs say more about the machines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.report import UNKNOWN, ratio

NOISE = 0.1
"""Two runs of the same code differ by up to this part on a shared machine."""


def compare(before: Path, after: Path) -> str:
    """Return the page."""
    old, new = (json.loads(file.read_text(encoding="utf-8")) for file in (before, after))
    known, now = of(old), of(new)
    head = [
        "# Benchmark, before and after",
        "",
        f"Before: {told(old)}. After: {told(new)}. A change of less than {NOISE:.0%} is noise.",
        "",
        "| ratio | before | after | change |",
        "|---|---|---|---|",
    ]
    rows = [row(claim, known.get(claim), target) for claim, target in now.items()]
    gone = [
        f"| {claim} | {ratio(known[claim]['measured'])} | {UNKNOWN} | gone |" for claim in known if claim not in now
    ]
    return "\n".join([*head, *rows, *gone])


def of(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The ratios of a run by their claims."""
    return {target["claim"]: target for target in run["targets"] if target["unit"] == "x"}


def told(run: dict[str, Any]) -> str:
    """On what a run was made."""
    facts = run["machine"]
    return f"headgate {facts['headgate']}, Python {facts['python']}, {facts['cpu']}, load {facts['load']}"


def row(claim: str, before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """One line of the page: better and worse are told by the direction of the target."""
    old, new = before and before["measured"], after["measured"]
    return f"| {claim} | {ratio(old or None)} | {ratio(new)} | {change(old, new, after['at_least'])} |"


def change(old: float | None, new: float | None, at_least: bool) -> str:
    """How much better or worse a ratio has become, in words."""
    if not old or not new:
        return "new" if new else UNKNOWN
    better = new / old if at_least else old / new
    if abs(better - 1) < NOISE:
        return "same"
    return f"{better:.2f}x better" if better > 1 else f"{1 / better:.2f}x worse"
