"""Recognition of a file's format by its first lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import InvalidCall
from headgate.lab.logs.fields import Chosen
from headgate.lab.logs.formats.balancer import balancer
from headgate.lab.logs.formats.columns import Columns
from headgate.lab.logs.formats.common import common
from headgate.lab.logs.formats.contract import Format, UnreadableLine
from headgate.lab.logs.formats.envoy import envoy
from headgate.lab.logs.formats.json_lines import SERVERS, JsonLines, getter, parsed
from headgate.lab.logs.formats.text import QUOTED, TextFormat
from headgate.wording import listed, shown

LOOKED_AT: Final = 100
"""Lines that are tried in every format."""
AGENT: Final = rf'" [0-9-]+ [0-9-]+ "{QUOTED}" "{QUOTED}"'
NAMED: Final = "as in --fields time=ts,key=client or fields={'time': 'ts', 'key': 'client'}"
COMMON: Final = (
    ("Traefik's common", re.compile(AGENT + rf' [0-9]+ "{QUOTED}" "{QUOTED}" [0-9]+ms\s*$')),
    ("combined", re.compile(AGENT)),
)
TEXTS: Final[tuple[tuple[str, Callable[[str, str, frozenset[str]], TextFormat]], ...]] = (
    ("common", common),
    ("AWS ALB", balancer),
    ("Envoy's text", envoy),
)


def recognise(lines: Sequence[str], chosen: Chosen) -> Format:
    """Return the reader of the format that most of the lines have, or raise `InvalidCall`."""
    if chosen.fields:
        return _named(lines, chosen)
    found = max(_candidates(lines, chosen), key=lambda candidate: _readable(candidate, lines))
    if not _readable(found, lines):
        raise InvalidCall(_unknown(lines))
    if chosen.key == "user" and "user" in found.lacks:
        raise InvalidCall(f"{found.name} has no user in its lines: use the key 'ip'")
    if isinstance(found, JsonLines):
        _check_present(found, lines)
        return found
    if chosen.own_key:
        raise InvalidCall(f"{found.name} has no field for the key {shown(chosen.key)}: its keys are 'ip' and 'user'")
    if chosen.cost:
        raise InvalidCall(
            f"{found.name} has no field for the cost {shown(chosen.cost)}: only CSV, TSV and JSON lines have costs"
        )
    return found


def _named(lines: Sequence[str], chosen: Chosen) -> Format:
    if not lines[0].startswith("{"):
        return Columns(chosen, lines[0])
    found = JsonLines("JSON lines", chosen, {role: (name,) for role, name in chosen.fields.items()})
    _check_present(found, lines)
    return found


def _candidates(lines: Sequence[str], chosen: Chosen) -> list[Format]:
    if lines[0].startswith("{"):
        return [JsonLines.of_server(name, chosen) for name in SERVERS]
    (plain, *others) = (make(name, chosen.key, chosen.wanted) for name, make in TEXTS)
    for name, pattern in COMMON:
        if sum(1 for line in lines[:LOOKED_AT] if pattern.search(line)) * 2 > len(lines[:LOOKED_AT]):
            plain.name = name
            break
    return [plain, *others]


def _readable(candidate: Format, lines: Sequence[str]) -> int:
    count = 0
    for line in lines[:LOOKED_AT]:
        try:
            candidate.row(line)
        except UnreadableLine:
            continue
        count += 1
    return count


def _check_present(found: JsonLines, lines: Sequence[str]) -> None:
    """Refuse a field that no line has: a misspelt key would make all requests one client's."""
    records = []
    for line in lines[:LOOKED_AT]:
        try:
            records.append(parsed(line))
        except UnreadableLine:
            continue
    for role in found.fields:
        names = found.fields[role]
        if records and all(getter(names)(record) is None for record in records) and role in found.asked:
            known = listed([shown(name)[1:-1] for name in records[0]])
            raise InvalidCall(f"no line has the field {shown(names[0])} for the {role}; the first has {known}")


def _unknown(lines: Sequence[str]) -> str:
    line = lines[0]
    if "\0" in line:
        return "it is a binary file, and no log of text"
    if line.startswith("{"):
        near, instead = "JSON lines", f"name their fields, {NAMED}"
    elif "\t" in line or line.count(",") > 1:
        near, instead = "CSV or TSV", f"name their columns, {NAMED}"
    else:
        near, instead = "the common log format", 'write lines such as 192.0.2.1 - - [date] "GET / HTTP/1.1" 200 5'
    return f"its format is unknown; the nearest is {near}: {instead}; its first line is {shown(line[:200])}"
