"""The lines of one file as rows, and a tally of the lines that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headgate.clock import SECOND
from headgate.errors import InvalidCall
from headgate.lab.logs.facts import BadLine, Input
from headgate.lab.logs.fields import Chosen
from headgate.lab.logs.formats.columns import Columns
from headgate.lab.logs.formats.contract import Format, UnreadableLine
from headgate.lab.logs.order import earlier
from headgate.lab.logs.recognition import recognise
from headgate.lab.logs.request import Row
from headgate.lab.logs.sources import PIECE, Source
from headgate.wording import shown

SAMPLE: Final = 1_000
"""Lines after which a file may be given up, and lines whose stamps are looked at for fractions."""
BAD_LINES_KEPT: Final = 3
LONGEST_EXCERPT: Final = 200


class Tally:
    """Counts of lines, over all files."""

    def __init__(self) -> None:
        self.lines = self.unreadable = self.out_of_order = 0
        self.bad_lines: list[BadLine] = []

    def note(self, line: BadLine) -> None:
        """Count a line that cannot be read."""
        self.unreadable += 1
        if len(self.bad_lines) < BAD_LINES_KEPT:
            self.bad_lines.append(line)


class LogFile:
    """One file of a log: its format, and its rows in the order of its lines."""

    def __init__(self, source: Source, tally: Tally) -> None:
        self._source, self._tally = source, tally
        self._number = self._lines = self._bad = self._before = 0
        self._first_bad: BadLine | None = None
        self._format: Format | None = None
        self.newest = 0
        """The newest second so far, in microseconds; before the first piece, that of the first line."""
        self.whole_seconds = True

    def open(self, chosen: Chosen) -> bool:
        """Recognise the format; return whether the file has a line."""
        head = [text_of(piece) for piece in self._source.head()]
        lines = [line for text in head if text.endswith("\n") for line in text.split("\n") if line.strip()][:SAMPLE]
        if not lines:
            if any(not text.endswith("\n") for text in head):
                raise InvalidCall(f"{self._source.name} has only lines of more than {PIECE:,} bytes")
            return False
        try:
            self._format = recognise(lines, chosen)
        except InvalidCall as reason:
            raise InvalidCall(f"{self._source.name} cannot be read: {reason}") from None
        times = [time for line in lines if (time := self._time(line)) is not None]
        self.newest = times[0] - times[0] % SECOND if times else 0
        self.whole_seconds = self.format.unit in ("date", "s") and not any(time % SECOND for time in times)
        return True

    def _time(self, line: str) -> int | None:
        try:
            return self.format.row(line)[0]
        except UnreadableLine:
            return None

    @property
    def format(self) -> Format:
        """The reader of its lines."""
        assert self._format is not None  # noqa: S101 - `open` came first
        return self._format

    @property
    def facts(self) -> Input:
        """The facts of this file so far."""
        name, unit = (self._format.name, self._format.unit) if self._format else ("empty", "date")
        return Input(self._source.name, name, unit, self._source.count, self._source.sha256)

    def pieces(self) -> Iterator[list[Row]]:
        """Yield the rows of the lines, many at once."""
        for piece in self._source.pieces():
            text = text_of(piece)
            if text.endswith("\n"):
                rows = self._rows(text)
            else:
                rows = []
                self._note(text, f"it has more than {PIECE:,} bytes")
            if rows:
                self._tally.out_of_order += earlier(rows, self._before)
                self._before = rows[-1][0]
            if self._lines >= SAMPLE:
                self._check()
            yield rows
        self._check()

    def _rows(self, text: str) -> list[Row]:
        rows = self.format.rows(text)
        count = text.count("\n")
        if len(rows) != count:
            return self._one_by_one(text)
        self._count(count)
        return rows

    def _one_by_one(self, text: str) -> list[Row]:
        rows = []
        header = self._format.header if isinstance(self._format, Columns) and not self._number else None
        for line in text.split("\n")[:-1]:
            if not line.strip() or line == header:
                self._number += 1
                header = header if not line.strip() else None
                continue
            try:
                row = self.format.row(line)
            except UnreadableLine as reason:
                self._note(line, str(reason))
            else:
                self._count(1)
                rows.append(row)
        return rows

    def _count(self, lines: int) -> None:
        self._number += lines
        self._lines += lines
        self._tally.lines += lines

    def _note(self, line: str, reason: str) -> None:
        self._count(1)
        self._bad += 1
        bad = BadLine(self._source.name, self._number, reason, shown(line[:LONGEST_EXCERPT]))
        self._first_bad = self._first_bad or bad
        self._tally.note(bad)

    def _check(self) -> None:
        """Give up a file of which half of the lines cannot be read."""
        if self._first_bad is None or self._bad * 2 < self._lines:
            return
        bad = self._first_bad
        raise InvalidCall(
            f"{bad.name} cannot be read: {self._bad:,} of its first {self._lines:,} lines are not of the nearest "
            f"format, {self.format.name}; line {bad.number} is {bad.excerpt}: {bad.reason}"
        )


def text_of(piece: bytes) -> str:
    """Decode a piece. Bytes that are no UTF-8 become escapes, so that different keys stay different."""
    return piece.decode("utf-8", "backslashreplace")
