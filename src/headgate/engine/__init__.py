"""The engine: tables of states and the deciders over them, native or pure; and the modes in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.choice import (
    NATIVE,
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
from headgate.engine.counted_run import NEVER_DUE, Counting, run_counted
from headgate.engine.modes import LEASED, LONGEST_WAIT, PEEK, RESERVE, TAKE, UP_TO, read_clock, slots_for, words_for

if TYPE_CHECKING:
    from headgate.engine.steps import Cell, give_back, look, recorded_in, remembered, settle
else:
    _OF_STEPS = ("Cell", "give_back", "look", "recorded_in", "remembered", "settle")

    def __getattr__(name: str) -> object:
        """Load the reference steps when first asked for: only stores that keep states elsewhere run them."""
        if name not in _OF_STEPS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module("headgate.engine.steps"), name)


__all__ = [
    "LEASED", "LONGEST_WAIT", "NATIVE", "NEVER_DUE", "PEEK", "RESERVE", "SHARES", "TAKE", "UP_TO", "Cell",
    "Counting", "Decider", "Decision", "Engine", "Entry", "EntryPermit", "LoopIteration", "Permit", "Places", "Table",
    "Tally", "give_back", "look", "pending", "read_clock", "recorded_in", "remembered", "run_counted", "settle",
    "slots_for", "words_for",
]  # fmt: skip
