"""The choice of the engine: native where it was built, unless HEADGATE_PURE asks for the pure one."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

from headgate.wording import log_of

_NO: Final = frozenset({"", "0", "no", "off", "false"})


def wants_pure() -> bool:
    """Whether HEADGATE_PURE asks for the pure engine: `1` does, `0` does not."""
    return os.environ.get("HEADGATE_PURE", "").strip().lower() not in _NO


def _native_available() -> bool:
    try:
        importlib.import_module("headgate.engine.native")
    except ImportError as reason:
        log_of("headgate").warning(
            "the native engine is not installed (%s): decisions are exact but slower; install a C compiler and "
            "reinstall Headgate, or set HEADGATE_PURE=1 to choose the pure engine",
            reason,
        )
        return False
    return True


NATIVE: Final = not wants_pure() and _native_available()

if TYPE_CHECKING or not NATIVE:
    from headgate.decision import Decision
    from headgate.engine.entry import Entry, LoopIteration, Places
    from headgate.engine.entry_permit import EntryPermit
    from headgate.engine.pure import Decider, Engine, pending
    from headgate.engine.pure_table import Table
    from headgate.engine.tally import Tally
    from headgate.permit import Permit

    SHARES = False
    """Whether tables can be shared between processes."""
else:
    from headgate.engine.native import (
        SHARES,
        Decider,
        Decision,
        Engine,
        Entry,
        EntryPermit,
        LoopIteration,
        Permit,
        Places,
        Table,
        Tally,
        pending,
    )

__all__ = [
    "NATIVE", "SHARES", "Decider", "Decision", "Engine", "Entry", "EntryPermit", "LoopIteration", "Permit", "Places",
    "Table", "Tally", "pending", "wants_pure",
]  # fmt: skip
