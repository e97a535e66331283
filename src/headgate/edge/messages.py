"""The log of a service, on stderr: what a person at its terminal, or its journal, should know."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

from headgate.wording import log_of

MOST: Final = 50
"""Lines a second; the number of those left out is told."""
FORMAT: Final = "headgate: %(message)s"


class Bounded(logging.Filter):
    """Lets a bounded number of lines through in each second: clients can cause some of them."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most, self._second, self._lines = most, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this line."""
        now = int(time.monotonic())
        if now != self._second:
            left_out = self._lines - self._most
            self._second, self._lines = now, 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} lines before this one were left out)"
                record.args = None
        self._lines += 1
        return self._lines <= self._most


def log_to_stderr(first: bool) -> None:
    """Write the log of Headgate to stderr. Every worker takes up a changed policy; only the first one tells of it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(Bounded())
    silent = ("reload",) if first else ("reload", "runtime")  # the supervisor tells of files that it has read
    handler.addFilter(lambda record: record.module not in silent)
    for name, level in (("headgate", logging.INFO), ("uvicorn.error", logging.ERROR)):
        logger = log_of(name).logger
        logger.addHandler(handler)
        logger.setLevel(level)
