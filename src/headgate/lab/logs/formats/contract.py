"""The contract of a format: it reads lines as rows, and gives a reason for each line that it cannot read."""

from __future__ import annotations

from typing import Protocol

from headgate.lab.logs.request import Row


class UnreadableLine(ValueError):
    """A line cannot be read. The message is the reason, escaped for a terminal."""


class Format(Protocol):
    """A reader of the lines of one file."""

    @property
    def name(self) -> str:
        """The name of the format in reports."""

    @property
    def lacks(self) -> frozenset[str]:
        """Those of `key`, `user`, `method`, `path` and `status` that its lines do not have."""

    @property
    def unit(self) -> str:
        """The unit of its stamps: `date`, `s`, `ms`, `us` or `ns`."""

    def rows(self, text: str) -> list[Row]:
        """Read many lines, each with its end, at full speed. Fewer rows than lines: some have to be read one by one."""

    def row(self, line: str) -> Row:
        """Read one line without its end, or raise `UnreadableLine`."""


class LineFormat:
    """The base of formats whose lines are read one by one."""

    def rows(self, text: str) -> list[Row]:
        """Read many lines."""
        try:
            return [self.row(line) for line in text.split("\n")[:-1]]
        except UnreadableLine:
            return []

    def row(self, line: str) -> Row:
        """Read one line."""
        raise NotImplementedError
