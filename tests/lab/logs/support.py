"""Lines for the tests of logs, and how they are read."""

from __future__ import annotations

import io
import time
from pathlib import Path

from headgate.lab.logs import Log

LINES = Path(__file__).parent / "lines"
START = 1_700_000_000
"""2023-11-14 22:13:20 UTC."""


def log_of(*texts: str | bytes, **options: object) -> Log:
    """The log that these files make."""
    return Log([io.BytesIO(text.encode() if isinstance(text, str) else text) for text in texts], **options)


def read(*texts: str | bytes, **options: object) -> list[tuple]:
    """The requests of these files, as plain tuples."""
    return [tuple(request) for request in log_of(*texts, **options)]


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
