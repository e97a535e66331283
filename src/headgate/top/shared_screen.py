"""The screen of a shared store: its tables, and the permits in flight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.top.screen import HELP, Line, View, fitted, number
from headgate.wording import printable


def draw_shared(last: Mapping[str, Any], view: View, width: int, height: int) -> list[Line]:
    """Return at most `height` lines."""
    head: Line = [("headgate top", "title"), (f"  {printable(str(last['shared']), 40)}", "")]
    processes = last["participants"]
    head.append((f"  {processes} process{'' if processes == 1 else 'es'}", ""))
    if view.paused:
        head.append(("  paused", "warning"))
    lines = [head, *([[(f"no answer: {printable(view.error)}", "warning")]] if view.error else []), []]
    held, tables = last["in_flight"], last["tables"]
    room = height - len(lines) - 4
    permits = min(len(held), max(1, room // 3))
    lines += _tables(tables, width, room - permits)
    lines += [[], *_permits(held, width, permits)]
    lines += [[] for _ in range(height - 1 - len(lines))]
    return [*lines[: height - 1], [(HELP, "quiet")]]


def _tables(tables: list[Mapping[str, Any]], width: int, room: int) -> list[Line]:
    limits = max(12, width - 62)
    lines: list[Line] = [
        [(f"{'namespace':16} {'limits':{limits}} {'keys':>9} {'fill':>7} {'evictions':>10} {'bytes':>13}", "quiet")]
    ]
    for table in sorted(tables, key=lambda each: (-each["evictions"], -each["keys"]))[: max(0, room)]:
        fill = table["keys"] / table["slots"] if table["slots"] else 0.0
        lines.append(
            [
                (f"{fitted(table['namespace'], 16)} {fitted(table['limits'], limits)} {number(table['keys']):>9} ", ""),
                (f"{fill:>7.1%} ", "warning" if fill > 0.75 else "passed"),
                (f"{number(table['evictions']):>10} ", "refused" if table["evictions"] else "quiet"),
                (f"{number(table['size']):>13}", "quiet"),
            ]
        )
    return lines


def _permits(held: list[Mapping[str, Any]], width: int, room: int) -> list[Line]:
    units = sum(each["units"] for each in held)
    lines: list[Line] = [[(f"in flight: {number(units)}", "title"), ("   the oldest first", "quiet")]]
    for each in held[:room]:
        process = "" if each["alive"] else "  its process is gone"
        limit = fitted(each["limit"], max(12, width - 42))
        text = f"{each['age']:>9.1f} s {number(each['units']):>6} {limit} {each['key']}"
        lines.append([(printable(text), ""), (process, "warning")])
    return lines
