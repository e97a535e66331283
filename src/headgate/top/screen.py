"""The screen of an app: lines of styled words that fit the width and the height of the terminal.

Every text of a snapshot is escaped: keys come from clients, and could otherwise control the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.top.cells import sized
from headgate.top.history import History, KeyRates, RuleRates
from headgate.wording import printable

Word = tuple[str, str]
"""A text, and its style: "", `title`, `quiet`, `passed`, `refused` or `warning`."""
Line = list[Word]
BARS: Final = " ▁▂▃▄▅▆▇█"
SORTS: Final[dict[str, Callable[[RuleRates], Any]]] = {
    "refused": lambda row: (-row.refused, -(row.share or 0), row.rule),
    "allowed": lambda row: (-row.allowed, row.rule),
    "share": lambda row: (-(row.share or 0), -row.refused, row.rule),
    "name": lambda row: (row.namespace, row.rule),
}
MOST_KEY_ROWS: Final = 8
WIDEST_KEY: Final = 70
"""Cells of a key on a wide terminal: room for a hash, and its numbers stay within one look."""
HELP: Final = "q quit   p pause   s sort   k keys"


class View(NamedTuple):
    """The choices of the user."""

    sort: str = "refused"
    keys: str = "refused_keys"
    paused: bool = False
    error: str = ""
    """The reason why the source does not answer."""


def draw(history: History, view: View, now: float, width: int, height: int) -> list[Line]:
    """Return at most `height` lines."""
    last = history.last or {}
    head = head_of(last, view, now)
    keys = history.keys(view.keys, height)
    room = height - len(head) - 4  # both headings, a blank line and the last line
    key_rows = min(len(keys), MOST_KEY_ROWS + max(0, height - 24) // 3, max(1, room // 3)) if keys else 1
    rules = sorted(history.rules(), key=SORTS[view.sort])
    lines = [*head, *rule_lines(rules, width, room - key_rows, view), []]
    lines += key_lines(keys, now, width, key_rows, view)
    lines += [[] for _ in range(height - 1 - len(lines))]
    return [*lines[: height - 1], [(HELP, "quiet")]]


def head_of(last: Mapping[str, Any], view: View, now: float) -> list[Line]:
    """Return the lines about the app as a whole: its age, its policy, its stores, and whether a count is degraded."""
    given = last.get("policy")
    policy: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    workers = last.get("workers", 1)
    first: Line = [("headgate top", "title"), (f"  up {ago(now, last.get('started'))}", "")]
    first.append((f"  {printable(str(workers))} worker{'' if workers == 1 else 's'}", ""))
    if policy.get("loaded_at"):  # limiters alone have no policy
        file = printable(str(policy.get("file") or "in code"), 30)
        first.append((f"  policy {file}, {ago(now, policy['loaded_at'])} old", ""))
    if policy.get("reload_failures"):
        first.append((f"  {printable(str(policy['reload_failures']))} reloads failed", "warning"))
    if view.paused:
        first.append(("  paused", "warning"))
    second: Line = []
    for store in last.get("stores") or ():
        second += _store(store) if isinstance(store, Mapping) else []
    third: list[Line] = [[(f"no answer: {printable(view.error)}", "warning")]] if view.error else []
    return [first, second or [("no store", "quiet")], *third]


def _store(store: Mapping[str, Any]) -> Line:
    name = " ".join(filter(None, (printable(str(store.get("name") or ""), 20), printable(str(store.get("kind")), 20))))
    words: Line = [(f"store {name} ", ""), ("up", "passed") if store.get("up", True) else ("down", "refused")]
    for count in ("keys", "evictions", "errors"):
        if store.get(count):
            words.append((f"  {number(store[count])} {count}", "quiet" if count == "keys" else "warning"))
    return [*words, *([("  DEGRADED", "refused")] if store.get("degraded") else []), ("   ", "")]


def rule_lines(rules: Sequence[RuleRates], width: int, room: int, view: View) -> list[Line]:
    """Return a heading and a row for each rule; the last row tells how many do not fit."""
    wide = max(0, width - 80)
    name, limit = 16 + min(wide // 4, 24), 13 + min(wide // 4, 30)
    spark = max(6, min(60, width - name - limit - 38))
    titles: Line = [(f"{'rule':{name}} {'limit':{limit}} ", "quiet")]
    for at, (title, by) in enumerate((("allowed/s", "allowed"), ("refused/s", "refused"), ("share", "share"))):
        titles.append((f"{title:>{(9, 10, 7)[at]}}", "title" if view.sort == by else "quiet"))
    titles.append((f"{'observed':>9} {'last 60 s'[:spark]}", "quiet"))
    shown = rules if len(rules) <= room else rules[: max(0, room - 1)]
    lines = [titles, *(_rule(row, name, limit, spark) for row in shown)]
    if len(shown) < len(rules):
        lines.append([(f"and {len(rules) - len(shown)} more rules", "quiet")])
    return lines if rules else [titles, [("no rule has counted a request", "quiet")]]


def _rule(row: RuleRates, name: int, limit: int, spark: int) -> Line:
    share = "-" if row.share is None else f"{row.share:.1%}"
    return [
        (f"{fitted(row.rule, name)} {fitted(row.limits, limit)} ", ""),
        (f"{rate(row.allowed):>9}", "passed" if row.allowed else "quiet"),
        (f"{rate(row.refused):>10}", "refused" if row.refused else "quiet"),
        (f"{share:>7}", "refused" if row.share else "quiet"),
        (f"{number(row.observed):>9} ", "warning" if row.observed else "quiet"),
        (sparks(row.history, spark), "passed"),
    ]


def key_lines(keys: Sequence[KeyRates], now: float, width: int, room: int, view: View) -> list[Line]:
    """Return a heading and a row for each key, as many as fit."""
    refused = view.keys == "refused_keys"
    title = "keys refused most" if refused else "busiest keys"
    wide = max(20, min(WIDEST_KEY, width - 50))
    lines: list[Line] = [
        [(f"{title:{wide}} {'rule':16} {'/s':>8} {'count':>11} {'since' if refused else '':>9}", "quiet")]
    ]
    for row in keys[:room]:
        error = f"±{number(row.error)}" if row.error else ""
        since = ago(now, row.since) if refused else ""
        style = "refused" if refused and row.rate else ""
        lines.append(
            [
                (f"{fitted(row.key, wide)} {fitted(row.rule, 16)} ", ""),
                (f"{rate(row.rate):>8} ", style),
                (f"{number(row.times) + error:>11} {since:>9}", ""),
            ]
        )
    return lines if keys else [*lines, [("none", "quiet")]]


def fitted(text: str, width: int) -> str:
    """Return a text of exactly this many cells, escaped: longer ones are cut, wide characters count twice."""
    return sized(printable(text[: width + 1]), width)


def sparks(history: Sequence[float], width: int) -> str:
    """Return bars for the last values, the newest at the right, against the highest of them."""
    values = list(history)[-60:]
    if len(values) > width:  # each bar is the highest of its values
        each = len(values) / width
        values = [max(values[int(at * each) : max(int(at * each) + 1, int((at + 1) * each))]) for at in range(width)]
    most = max(values, default=0.0)
    bars = [BARS[0 if not value else max(1, math.ceil(value / most * 8))] for value in values]
    return "".join(bars).rjust(width)


def rate(value: float) -> str:
    """Write a number of requests a second."""
    if value >= 1000:
        return number(round(value))
    return f"{value:.1f}" if value else "0"


def number(value: Any) -> str:  # noqa: ANN401 - from JSON
    """Write a count in few characters: 1,234 or 12.3M."""
    if not isinstance(value, int | float):
        return "-"
    for limit, unit in ((10**12, "T"), (10**9, "G"), (10**7, "M")):
        if value >= limit:
            return f"{value / (limit if unit != 'M' else 10**6):.1f}{unit}"
    return f"{value:,.0f}"


def ago(now: float, then: Any) -> str:  # noqa: ANN401 - from JSON
    """Write how long ago an instant was: `5 m`."""
    if not isinstance(then, int | float):
        return "-"
    past = max(0, int(now - then))
    for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60)):
        if past >= 2 * seconds:
            return f"{past // seconds} {unit}"
    return f"{past} s"
