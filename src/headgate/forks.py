"""Hooks for forked children: a child has copies of its parent's locks, held or not, and none of its threads."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

_calls: weakref.WeakKeyDictionary[Any, Callable[[Any], None] | None] = weakref.WeakKeyDictionary()
"""Objects and the method of each, or functions, in the order they came: the parts of an object come before it."""


def after_fork(call: Callable[[], None]) -> None:
    """Call this in every forked child from now on. A method is called while its object lives; an object has one."""
    if isinstance(call, MethodType):
        _calls[call.__self__] = call.__func__
    else:
        _calls[call] = None


def _call_all() -> None:
    for each, method in list(_calls.items()):
        try:
            each() if method is None else method(each)
        except Exception:  # the rest is needed all the same
            sys.excepthook(*sys.exc_info())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_call_all)
