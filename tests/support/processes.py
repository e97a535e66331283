"""Other processes for tests, in a few milliseconds each: they are forked from one that has nothing but modules."""

from __future__ import annotations

import multiprocessing
from typing import Any

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
CONTEXT: Any = multiprocessing.get_context(METHOD)
CONTEXT.set_forkserver_preload(
    ["tests.support.homes", "tests.support.leasing", "tests.support.holding", "headgate.shaper"]
)
"""A process that is spawned imports them anew, for half a second of work."""
