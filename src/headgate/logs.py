"""The logs of this library: `wording.log_of` makes one. They stand apart because `logging` is slow to import."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class Log(logging.LoggerAdapter[logging.Logger]):
    """A log whose lines say `headgate`: by the name of the log, or in front of the text where no handler is set up."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:  # noqa: ANN401
        """The line."""
        return (msg if self.logger.hasHandlers() else f"headgate: {msg}"), kwargs


def open_log(name: str) -> Log:
    """The log of this name."""
    return Log(logging.getLogger(name), {})
