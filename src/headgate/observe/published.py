"""The file of one worker: a line with its counts, and lines with its keys, of which a reader reads what it needs.

The counts are those of the worker and of the dead workers that had its number before. The keys of the dead are apart:
they do not change any more, and are written from the same text each time.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Final, NamedTuple, cast

from headgate.observe.merging import merged
from headgate.observe.snapshot import KeyPart, RulePart, Snapshot, empty, without_keys

FORMAT: Final = 3
NO_KEYS, FIRST_KEYS, ALL_KEYS = range(3)
"""The part of the lists of keys that a reader needs: nothing for metrics, the first of each for a screen."""
FIRST: Final = 50
"""The keys of a list in its first line."""


class Published(NamedTuple):
    """The counts and keys that a worker has published."""

    own: Snapshot
    """Its counts, those of the dead included, and its own keys."""
    past: Snapshot | None
    """Only keys: those of the dead."""

    def as_past(self) -> Past:
        """Return the counts and keys of a worker that is dead, for its successor."""
        both = [self.own] if self.past is None else [self.own, self.past]
        return Past(merged([], self.own["at"], both))


class Past:
    """The counts of the dead workers that had a number, and their keys as text."""

    def __init__(self, seen: Snapshot) -> None:
        self.seen = seen
        self.keys = _keys_text(seen)


def text_of(own: Snapshot, past: Past | None) -> str:
    """Return the text of a worker's file."""
    counts = own if past is None else merged([own], own["at"], [past.seen], keys=False)
    first = _dumped({"format": FORMAT, "counts": {**without_keys(counts), "rules": _rule_rows(counts["rules"])}})
    return "\n".join((first, *_keys_text(own), *([] if past is None else past.keys)))


def read_file(file: BinaryIO, keys: int) -> Published:
    """Return what a file says, with as many of its keys as needed; raise if it is not the file of a worker."""
    found = json.loads(file.readline())
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}")
    own = cast("Snapshot", {**empty(0.0), **found["counts"], "rules": _read_rules(found["counts"]["rules"])})
    if keys == NO_KEYS:
        return Published(own, None)
    own.update(_read_keys(file, keys))  # type: ignore[typeddict-item]
    past = empty(own["at"])
    past["started"] = own["started"]
    past.update(_read_keys(file, keys))  # type: ignore[typeddict-item]
    return Published(own, past if past["refused_keys"] or past["busiest_keys"] else None)


def _rule_rows(rules: list[RulePart]) -> dict[str, Any]:
    """Return rules as rows of numbers; what most of them share, their limits and the names of counts, stands once."""
    limits: dict[str, int] = {}
    names: dict[tuple[str, ...], int] = {}
    rows = [
        [
            rule["namespace"],
            rule["rule"],
            limits.setdefault(_dumped(rule["limits"]), len(limits)),
            names.setdefault(tuple(rule["counts"]), len(names)),
            list(rule["counts"].values()),
        ]
        for rule in rules
    ]
    return {"limits": [json.loads(each) for each in limits], "names": list(names), "rows": rows}


def _read_rules(found: Any) -> list[RulePart]:  # noqa: ANN401 - from JSON
    limits, names = found["limits"], found["names"]
    return [
        {
            "namespace": namespace,
            "rule": rule,
            "limits": limits[limited],
            "counts": dict(zip(names[named], counts, strict=True)),
        }
        for namespace, rule, limited, named, counts in found["rows"]
    ]


def _keys_text(seen: Snapshot) -> tuple[str, str]:
    """Return two lines: the first keys of each list, and all others."""
    first: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, floor in seen["floors"].items():
        rows = [list(row.values()) for row in _listed(seen, name)]
        first[name] = {"rows": rows[:FIRST], "floor": floor}
        rest[name] = rows[FIRST:]
    return _dumped(first), _dumped(rest)


def _read_keys(file: BinaryIO, keys: int) -> dict[str, Any]:
    """Return the parts of a snapshot in the next two lines. A list that is cut has its last count as its floor."""
    first, others = file.readline(), file.readline()
    if not first:
        return {}
    parts: dict[str, Any] = {"floors": {}}
    more = json.loads(others) if keys == ALL_KEYS else {}
    for name, part in json.loads(first).items():
        rows, floor = part["rows"] + more.get(name, []), part["floor"]
        cut = keys == FIRST_KEYS and len(rows) == FIRST
        parts["floors"][name] = max(floor, rows[-1][2]) if cut else floor
        parts[f"{name}_keys"] = [
            {"rule": rule, "key": key, "count": count, "error": error, "since": since}
            for rule, key, count, error, since in rows
        ]
    return parts


def _listed(seen: Snapshot, name: str) -> list[KeyPart]:
    rows: list[KeyPart] = seen[f"{name}_keys"]  # type: ignore[literal-required]
    return rows


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
