"""Workers that fail, for the supervisor: in a module of their own, since each is run in a new process."""

from __future__ import annotations

import sys
from collections.abc import Callable

from headgate.errors import StoreError


def dies_young(ready: Callable[[], None]) -> None:
    """Serve for a moment."""
    ready()
    sys.exit(3)


def dies_before_it_serves(why: str, ready: Callable[[], None]) -> None:
    """Fail at the start."""
    raise StoreError(why)
