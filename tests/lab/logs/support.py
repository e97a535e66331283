"""Lines for the tests of logs, and how they are read."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.lab.logs import Log, Row

LINES = Path(__file__).parent / "lines"
START = 1_700_000_000
"""2023-11-14 22:13:20 UTC."""


def log_of(*texts: str | bytes, **options: object) -> Log:
    """The log that these files make."""
    return Log([io.BytesIO(text.encode() if isinstance(text, str) else text) for text in texts], **options)


def read(*texts: str | bytes, **options: object) -> list[Row]:
    """The requests of these files, as plain tuples."""
    return [row for batch in log_of(*texts, **options).batches() for row in batch]


def common(second: int, client: str = "a", path: str = "/") -> str:
    """A line in the common log format, so many seconds after `START`."""
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START + second))
    return f'{client} - - [{stamp}] "GET {path} HTTP/1.1" 200 5\n'


def common_log(*seconds: int) -> str:
    """Lines of clients that are called by their place."""
    return "".join(common(second, f"c{i}") for i, second in enumerate(seconds))


def drained(log: Log) -> Log:
    """The log, read to its end."""
    for _ in log.batches():
        pass
    return log


class Lines(io.RawIOBase):
    """A file of lines that are made when they are read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines, self._rest = lines, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._lines, b"")
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)], self._rest = taken, self._rest[len(taken) :]
        return len(taken)
