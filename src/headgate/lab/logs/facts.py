"""Facts about a log beside its requests: inputs, lines that could not be read, and the order of the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Input:
    """One file of a log."""

    name: str
    """Escaped for a terminal."""
    format: str
    stamps: str
    """The unit of its stamps: `date`, `s`, `ms`, `us` or `ns`."""
    bytes: int
    """Bytes read so far, as the file has them, compressed or not."""
    sha256: str
    """The hash of these bytes; empty until the file was read to its end."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be read."""

    name: str
    """The file, escaped for a terminal."""
    number: int
    reason: str
    excerpt: str
    """The beginning of the line, escaped for a terminal."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts of a log so far; of all of it, once its last request was read.

    `requests + unreadable + late == lines` holds when the log was read to its end; before, some requests are held back
    to be sorted.
    """

    inputs: tuple[Input, ...]
    lines: int
    """Lines of all files, without empty ones and without headers."""
    requests: int
    """Requests given out."""
    unreadable: int
    bad_lines: tuple[BadLine, ...]
    """The first three of them."""
    late: int
    """Requests left out: their line comes more than 5 minutes after a later one, or after more than can be held."""
    out_of_order: int
    """Lines that are earlier than the line before them, sorted or late."""
    spread: bool
    """Whether the stamps are whole seconds, and their requests were spread over the second."""
    first: int | None
    """The earliest time that was given out, in microseconds; None before the first request."""
    last: int | None
    missing: tuple[str, ...]
    """Fields that the log lacks, of `key`, `user`, `method`, `path` and `status`; without `key` there is one client."""

    @property
    def format(self) -> str:
        """The formats of the files, joined if they differ."""
        return ", ".join(dict.fromkeys(each.format for each in self.inputs))
