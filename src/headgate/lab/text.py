"""Parts of tables that several experiments print."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headgate.clock import SECOND
from headgate.lab.logs import LogFacts
from headgate.lab.numbers import several
from headgate.wording import printable

LONGEST_KEY: Final = 40
ERRORS: Final = 400
"""Answers of a server with a status from here on are errors."""


def printed_key(key: str) -> str:
    """Return a key for a terminal: escaped and shortened."""
    return printable(key, LONGEST_KEY)


def instant(us: int) -> str:
    """Write an instant in UTC, to the second."""
    return f"{datetime.fromtimestamp(us // SECOND, UTC):%Y-%m-%d %H:%M:%S}"


def share(part: int, whole: int) -> str:
    """Write a part of a whole in percent."""
    return f"{part / whole:.0%}" if whole else "-"


def about_log(facts: LogFacts) -> str:
    """Tell what was read, and what the reader had to do about lines that were broken, late or out of order."""
    lines = [f"{', '.join(each.name for each in facts.inputs)}: {facts.format}, {several(facts.lines, 'line')}"]
    if facts.spread:
        lines.append("  stamps are whole seconds: requests are spread over their second, in order (or: --stamps as-is)")
    if "key" in facts.missing:
        lines.append("  the log names no client: all requests count as one client")
    if facts.out_of_order or facts.late:
        lines.append(f"  {several(facts.out_of_order, 'line')} came out of order" + _late(facts.late))
    if facts.unreadable:
        lines.append(f"  {several(facts.unreadable, 'line')} could not be read:")
        lines += [f"    {bad.name}:{bad.number}: {bad.reason}: {bad.excerpt}" for bad in facts.bad_lines]
    return "\n".join(lines)


def _late(late: int) -> str:
    # Not a part of those lines: each line after a much later one is left out, also if it is later than its neighbour.
    return f"; {several(late, 'request')} more than 5 minutes late are left out" if late else ", and were sorted"
