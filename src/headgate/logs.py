"""The logs of this library, opened by `wording.log_of`. A module of its own, because `logging` is slow to import."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """A log whose lines name `headgate`: in the log's name, or before the text where no handler is set up."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401
        """Return the line, with `headgate:` before it where no handler writes the log's name."""
        return (msg if self.logger.hasHandlers() else f"headgate: {msg}"), kwargs


def open_log(name: str) -> Log:
    """Return the log of this name."""
    return Log(logging.getLogger(name), {})
