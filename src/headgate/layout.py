"""Numbers that Python, C and Lua agree on: how answers, states, tables and the files of shared stores are laid out.

setup.py writes them for the native engine, stores/redis/scripts.py into its scripts. Nothing of the house is imported
here, so that setup.py can run this file alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WORD: Final = 8
"""Bytes."""
MOST_CALLS: Final = 64
"""Calls in one decision."""
ANSWER_FIELDS: Final = 6
"""Integers per answer in a flat sequence of answers: allowed, remaining, retry us, reset us, mark (2)."""

# States

FRACTION_BITS: Final = 13
"""Of a bucket's word, below its microseconds: a part of one."""
UNIT_BITS: Final = 17
"""Of a permit's number: its units."""
PERMITS_AT: Final = 2
"""Words of a state before its permits: how many permits are out, and how many units those are."""
PERMIT_WORDS: Final = 3
"""Of each permit: since when, its number, and its holder above the units that it holds."""

# Tables

WAYS: Final = 8
"""Slots in a set: a native key lives in one of two sets."""
EPOCH_LEAD: Final = 2**48
"""Microseconds before its first instant that a table of buckets can represent."""
EPOCH_SPAN: Final = 2**49
"""Instants from its epoch on that leave room for the longest burst in 50 bits."""
NO_EPOCH_SPAN: Final = 2**53
"""The same for other tables."""

# The files of a shared store: a header of one page, the stripes, their journals, the tags of all slots, their states

MAGIC: Final = int.from_bytes(b"headgate", "little")
VERSION: Final = 2
KINDS: Final = ("bucket", "window", "log", "concurrency")
HEADER_WORDS: Final = 512
TEXT_AT: Final = 256
"""Bytes into the header where the words of the table stand: namespace, family and the first limit that needed it."""
STRIPES: Final = 64
STRIPE_WORDS: Final = 8
"""A cache line for each."""
STRIPE_FIELDS: Final = {
    "lock": "0, or the signature of the holder",
    "stuck": "the signature of a holder that somebody has waited for in vain",
    "slot": "the slot whose state the journal keeps, plus 1; 0 for none",
    "turns": "how often it was held: a holder that goes on is not one that is stopped",
}
PARTICIPANTS: Final = 4096
ROLL_BYTES: Final = WORD * (PARTICIPANTS + 1)
"""A word for each participant, and one that counts the tables that were made."""


class Head(NamedTuple):
    """The header of a table."""

    magic: int
    version: int
    size: int
    boot: int
    kind: int
    sets: int
    words: int
    stride: int
    journal: int
    epoch: int
    order: int
    used: int = 0
    evictions: int = 0

    @property
    def slots(self) -> int:
        """Places for keys."""
        return self.sets * WAYS

    @property
    def tags_at(self) -> int:
        """Words before the tags."""
        return HEADER_WORDS + STRIPES * (STRIPE_WORDS + self.journal)

    @property
    def states_at(self) -> int:
        """Words before the states."""
        return self.tags_at + self.slots

    @property
    def expected_size(self) -> int:
        """The bytes that a table of this shape has."""
        return WORD * (self.states_at + self.slots * self.stride)

    def sets_within(self, size: int) -> int:
        """How many sets a table of this shape has room for in so many bytes."""
        return max(0, size - self._replace(sets=0).expected_size) // (WORD * WAYS * (1 + self.stride))


def permits_within(words: int) -> int:
    """How many permits a state of so many words has room for."""
    return (words - PERMITS_AT) // PERMIT_WORDS
