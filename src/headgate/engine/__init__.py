"""The engine: tables of states and the deciders over them, native or pure; and the modes in which they are asked."""

from headgate.engine.choice import (
    NATIVE,
    SHARES,
    Decider,
    Decision,
    Engine,
    Entry,
    Permit,
    Places,
    Table,
    Turn,
    pending,
)
from headgate.engine.modes import LEASED, LONGEST_WAIT, PEEK, RESERVE, TAKE, UP_TO, read_clock, slots_for, words_for

__all__ = [
    "LEASED", "LONGEST_WAIT", "NATIVE", "PEEK", "RESERVE", "SHARES", "TAKE", "UP_TO", "Decider", "Decision", "Engine",
    "Entry", "Permit", "Places", "Table", "Turn", "pending", "read_clock", "slots_for", "words_for",
]  # fmt: skip
