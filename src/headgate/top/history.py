"""Rates from snapshots: counts only grow, so the difference of two of them is what happened in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise, starmap
from typing import Any, Final, NamedTuple

SECONDS: Final = 60
"""The length of a spark line, and of the share of refusals."""
PASSED: Final = ("allowed", "observed", "delayed", "degraded_allowed")
REFUSED: Final = ("refused", "shadowed", "degraded_refused")
COUNTED: Final = PASSED + REFUSED
OBSERVED: Final = COUNTED.index("observed")
Name = tuple[str, str]


class Counted(NamedTuple):
    """The counts of a rule in one snapshot."""

    passed: int
    refused: int
    observed: int


Seen = deque[tuple[float, Counted]]
"""The counts of a rule, by the time of their snapshot."""


class RuleRates(NamedTuple):
    """A rule in the last second, and in the last minute."""

    namespace: str
    rule: str
    limits: str
    allowed: float
    """Requests a second that pass."""
    refused: float
    share: float | None
    """Refusals of all requests in the last minute; None without a request."""
    observed: int
    """Requests in the last minute that the rule would have refused if it were enforced."""
    seen: Seen
    """The counts of each snapshot, the newest last."""

    @property
    def history(self) -> tuple[float, ...]:
        """Requests a second, the newest last; only the rules on the screen need it."""
        return tuple(map(sum, starmap(_rates_of, pairwise(self.seen))))


class KeyRates(NamedTuple):
    """A key that was refused, or that is busy."""

    rule: str
    key: str
    times: int
    error: int
    rate: float
    since: float | None


class History:
    """The snapshots of the last minute; of all but the last two, only the counts of their rules are kept."""

    def __init__(self) -> None:
        self._counts: dict[Name, Seen] = {}
        self._last: deque[Mapping[str, Any]] = deque(maxlen=2)

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The newest snapshot."""
        return self._last[-1] if self._last else None

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """Keep a snapshot; one from before a restart, or of the same instant, is no base for a rate."""
        last, at = self.last, _at(snapshot)
        counts = {_name(rule): _counted(rule) for rule in _rows(snapshot, "rules")}
        if last is not None:
            before = _at(last)
            pairs = [(self._counts[name][-1][1], now) for name, now in counts.items() if name in self._counts]
            shrunk = any(now.passed < old.passed or now.refused < old.refused for old, now in pairs)
            if snapshot.get("started") != last.get("started") or shrunk or at < before:
                self._counts.clear()
                self._last.clear()
            elif at == before:
                self._last.pop()
                for seen in self._counts.values():
                    seen.pop()
        self._counts = {name: self._counts.get(name, deque(maxlen=SECONDS + 1)) for name in counts}
        for name, counted in counts.items():
            self._counts[name].append((at, counted))
        self._last.append(snapshot)

    def copied(self) -> History:
        """Return the same snapshots, to which later ones are not added."""
        other = History()
        other._counts = {name: seen.copy() for name, seen in self._counts.items()}
        other._last = self._last.copy()
        return other

    def rules(self) -> list[RuleRates]:
        """Return every rule of the newest snapshot."""
        return [self._rates(rule) for rule in _rows(self.last or {}, "rules")]

    def _rates(self, rule: Mapping[str, Any]) -> RuleRates:
        name = _name(rule)
        seen = self._counts[name]
        first, now = seen[0][1], seen[-1][1]
        passed, refused = now.passed - first.passed, now.refused - first.refused
        return RuleRates(
            *name,
            "; ".join(_text(str(limit.get("text", "")), name[1]) for limit in _rows(rule, "limits")),
            *(_rates_of(seen[-2], seen[-1]) if len(seen) > 1 else (0.0, 0.0)),
            refused / (passed + refused) if passed + refused > 0 else None,
            now.observed - first.observed,
            seen,
        )

    def keys(self, which: str, most: int | None = None) -> list[KeyRates]:
        """Return the keys of the newest snapshot: `refused_keys` or `busiest_keys`; the first of them if `most`."""
        if not self._last:
            return []
        now, before = self._last[-1], self._last[0]
        rows = _rows(now, which)[:most]
        shown = {_key(row) for row in rows}
        counts = {key: _number(row, "count") for row in _rows(before, which) if (key := _key(row)) in shown}
        past = max(_at(now) - _at(before), 1e-9)
        return [
            KeyRates(
                *_key(row),
                times := _number(row, "count"),
                _number(row, "error"),
                max(0, times - counts.get(_key(row), times)) / past,
                row.get("since"),
            )
            for row in rows
        ]


def _rates_of(one: tuple[float, Counted], other: tuple[float, Counted]) -> tuple[float, float]:
    """Return the requests a second that passed and that were refused between two snapshots."""
    (start, old), (end, new) = one, other
    return (new.passed - old.passed) / (end - start), (new.refused - old.refused) / (end - start)


def _rows(snapshot: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = snapshot.get(name)
    # of JSON: `Mapping` would take longer here than all the rest
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _name(rule: Mapping[str, Any]) -> Name:
    return str(rule.get("namespace", "")), str(rule.get("rule", ""))


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("rule", "")), str(row.get("key", ""))


def _text(limit: str, rule: str) -> str:
    """Return a limit without the name that its rule gives it: the rule stands beside it."""
    text, _, name = limit.rpartition(" as ")
    given = name.removeprefix(rule).removeprefix(".")
    if not text or not name.startswith(rule):
        return limit
    return text if not given or given.isdigit() else f"{text} as {given}"


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _counted(rule: Mapping[str, Any]) -> Counted:
    counts = rule.get("counts")
    if not isinstance(counts, dict):
        return Counted(0, 0, 0)
    numbers = [counts.get(name, 0) for name in COUNTED]
    if set(map(type, numbers)) != {int}:  # of another program, or of an attacker
        numbers = [_number(counts, name) for name in COUNTED]
    return Counted(sum(numbers[: len(PASSED)]), sum(numbers[len(PASSED) :]), numbers[OBSERVED])


def _at(snapshot: Mapping[str, Any]) -> float:
    at = snapshot.get("at", 0.0)
    return float(at) if isinstance(at, int | float) else 0.0
