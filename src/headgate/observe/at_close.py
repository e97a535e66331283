"""Calls at the end of an app: its last counts are published when its edge is closed, or when the process ends.

Both are needed. A server may end its worker by a signal after the app has shut down, so that no exit handler runs; and
an app without a shutdown, as one of WSGI, ends with its process.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

_calls: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def at_end(each: Any, call: Callable[[Any], None]) -> None:  # noqa: ANN401 - of any type
    """Call this with the object at each end, while the object lives."""
    _calls[each] = call


def tell_of_end() -> None:
    """Make the calls; an end may come more than once."""
    for each, call in list(_calls.items()):
        call(each)


atexit.register(tell_of_end)
