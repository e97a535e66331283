"""Lines of columns, between commas or tabs, with a header line or by number."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Final

from headgate.errors import InvalidCall
from headgate.lab.logs.fields import Chosen
from headgate.lab.logs.formats.contract import LineFormat, UnreadableLine
from headgate.lab.logs.formats.requests import origin_form
from headgate.lab.logs.formats.values import cost_of, key_of, status_of
from headgate.lab.logs.request import NOBODY, Row
from headgate.lab.logs.stamps import Memo, Stamps
from headgate.wording import shown, suggestion

ABSENT: Final = -1


class Columns(LineFormat):
    """A reader of CSV or TSV."""

    def __init__(self, chosen: Chosen, first_line: str) -> None:
        self._separator = "\t" if "\t" in first_line else ","
        self.name = "TSV" if self._separator == "\t" else "CSV"
        self._stamps = Stamps(chosen.unit)
        self._times = self._stamps.texts
        self._keys, self._costs, self._statuses = Memo(key_of), Memo(cost_of), Memo(status_of)
        self.header = ""
        self._places = self._placed(chosen, first_line)
        self.lacks = frozenset({"key", "user", "method", "path", "status"} - self._places.keys())
        self._time = self._places["time"]
        self._key = self._places.get("key", ABSENT)
        self._cost = self._places.get("cost", ABSENT)
        self._method = self._places.get("method", ABSENT) if "method" in chosen.wanted else ABSENT
        self._path = self._places.get("path", ABSENT) if "path" in chosen.wanted else ABSENT
        self._status = self._places.get("status", ABSENT)

    def _placed(self, chosen: Chosen, first_line: str) -> dict[str, int]:
        """Return the column of each role. A first line that names columns, or has no time, is the header."""
        if all(name.isdecimal() and name != "0" for name in chosen.fields.values()):
            places = {role: int(name[:6]) - 1 for role, name in chosen.fields.items()}
            try:
                Stamps(chosen.unit).read(self._split(first_line)[places["time"]])
            except (UnreadableLine, IndexError):
                self.header = first_line
            return places
        self.header = first_line
        try:
            columns = self._split(first_line)
        except UnreadableLine as reason:
            raise InvalidCall(f"its first line, {shown(first_line[:200])}, names no columns: {reason}") from None
        return {role: _place(columns, name) for role, name in chosen.fields.items()}

    @property
    def unit(self) -> str:
        """The unit of its stamps."""
        return self._stamps.known

    def _split(self, line: str) -> list[str]:
        if line.endswith("\r"):
            line = line[:-1]
        if '"' not in line:
            return line.split(self._separator)
        try:
            return next(csv.reader([line], delimiter=self._separator))
        except (csv.Error, StopIteration):
            raise UnreadableLine("its quotes do not match") from None

    def row(self, line: str) -> Row:
        """Read one line."""
        columns = self._split(line)
        try:
            return (
                self._times[columns[self._time]],
                self._keys[columns[self._key]] if self._key >= 0 else NOBODY,
                self._costs[columns[self._cost]] if self._cost >= 0 else 1,
                columns[self._method] if self._method >= 0 else "",
                origin_form(columns[self._path]) if self._path >= 0 else "",
                self._statuses[columns[self._status]] if self._status >= 0 else 0,
            )
        except IndexError:
            raise UnreadableLine(f"it has {len(columns)} of {max(self._places.values()) + 1} columns") from None


def _place(columns: Sequence[str], name: str) -> int:
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and 0 < int(name[:6]) <= len(columns):
        return int(name[:6]) - 1
    raise InvalidCall(
        f"the first line has no column {shown(name)}: {suggestion(name, [shown(each)[1:-1] for each in columns])}; "
        "columns without a header are numbered, as in --fields time=1 or fields={'time': '1'}"
    )
