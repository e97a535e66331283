"""Numbers that Python, C and Lua share: the layout of answers, states, tables and the files of shared stores.

setup.py writes them for the native engine, stores/kernels.py into the kernels of servers. This file imports no other
file of Headgate, so that setup.py can run it alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WORD: Final = 8
"""The bytes of a word."""
MOST_CALLS: Final = 64
"""The most calls in one decision."""
ANSWER_FIELDS: Final = 6
"""Integers per answer in a flat sequence of answers: allowed, remaining, retry us, reset us, mark (2)."""

# States

FRACTION_BITS: Final = 13
"""The bits of a bucket's word below its microseconds: a fraction of a microsecond."""
UNIT_BITS: Final = 17
"""The bits of a permit's number that hold its units."""
PERMITS_AT: Final = 2
"""The words of a state before its permits: the number of permits, and the number of their units."""
PERMIT_WORDS: Final = 3
"""The words of a permit: the instant of the charge, the number, and the holder above the units held."""

# Tables

WAYS: Final = 8
"""Slots in a set: a key of the native engine is in one of two sets."""
EPOCH_LEAD: Final = 2**48
"""The microseconds before its first instant that a table of buckets can represent."""
EPOCH_SPAN: Final = 2**49
"""The number of instants from the epoch of a table that leave room for the longest burst in 50 bits."""
NO_EPOCH_SPAN: Final = 2**53
"""The same for other tables."""

# The files of a shared store: a header of one page, the stripes, their journals, the tags of all slots, their states

MAGIC: Final = int.from_bytes(b"headgate", "little")
VERSION: Final = 2
KINDS: Final = ("bucket", "window", "log", "concurrency", "pause", "bounds")
HEADER_WORDS: Final = 512
TEXT_AT: Final = 256
"""The offset, in bytes, of the texts in the header: namespace, family and the first limit of the table."""
STRIPES: Final = 64
STRIPE_WORDS: Final = 8
"""A cache line for each stripe."""
STRIPE_FIELDS: Final = {
    "lock": "0, or the signature of the holder",
    "stuck": "the signature of a holder that a thread has waited for in vain",
    "slot": "the slot whose state the journal keeps, plus 1; 0 for none",
    "turns": "the number of times that it was held, by which a stopped holder is recognised",
}
PARTICIPANTS: Final = 4096
ROLL_BYTES: Final = WORD * (PARTICIPANTS + 1)
"""A word for each participant, and a count of the tables that were made."""


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
        """The most keys in the table."""
        return self.sets * WAYS

    @property
    def tags_at(self) -> int:
        """The words before the tags."""
        return HEADER_WORDS + STRIPES * (STRIPE_WORDS + self.journal)

    @property
    def states_at(self) -> int:
        """The words before the states."""
        return self.tags_at + self.slots

    @property
    def expected_size(self) -> int:
        """The bytes of a table of this shape."""
        return WORD * (self.states_at + self.slots * self.stride)

    def sets_within(self, size: int) -> int:
        """Return the number of sets of a table of this shape that fit in this number of bytes."""
        return max(0, size - self._replace(sets=0).expected_size) // (WORD * WAYS * (1 + self.stride))


def permits_within(words: int) -> int:
    """Return the number of permits that fit in a state of this number of words."""
    return (words - PERMITS_AT) // PERMIT_WORDS
