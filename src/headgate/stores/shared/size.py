"""How large a new table of a shared store is: it is allocated whole, within what the other tables have left."""

from __future__ import annotations

from typing import Final

from headgate.algorithms import bucket, log
from headgate.engine import slots_for, words_for
from headgate.errors import StoreError
from headgate.layout import EPOCH_LEAD, KINDS, MAGIC, VERSION, WAYS, WORD, Head
from headgate.limit import Limit
from headgate.stores.shared.file import boot_mark

LEAST_KEYS: Final = 1_000
"""A table of rates for fewer keys would forget live ones all the time. (Few keys have something in flight at once.)"""
PART: Final = 4
"""A table takes this part of what is left: the first has room for many keys, and the twelfth still for thousands."""


def new_head(limit: Limit, order: int, now_us: int, left: int, max_keys: int | None) -> Head:
    """The header of a table for states such as this limit's, where so many bytes are left; or a StoreError."""
    words = words_for(limit)
    head = Head(
        magic=MAGIC,
        version=VERSION,
        size=0,
        boot=boot_mark(),
        kind=KINDS.index(limit.step.KIND),
        sets=0,
        words=words,
        stride=words + (limit.block_us > 0),
        journal=2 if limit.step is log else words,
        epoch=now_us - EPOCH_LEAD if limit.step is bucket else 0,
        order=order,
    )
    head = head._replace(sets=_sets(head, limit, left, max_keys))
    if head.expected_size > left:
        raise StoreError(_no_room(head, limit, left, max_keys))
    return head._replace(size=head.expected_size)


def _sets(empty: Head, limit: Limit, left: int, max_keys: int | None) -> int:
    """How many sets of slots: for `max_keys`, or for what fits a part of what is left."""
    if limit.in_flight:
        most = slots_for(max_keys or 2**40) // WAYS
        return max(1, min(most, empty.sets_within(left // PART)))
    if max_keys is not None:
        return slots_for(max_keys) // WAYS
    return max(slots_for(LEAST_KEYS) // WAYS, empty.sets_within(left // PART))


def _no_room(head: Head, limit: Limit, left: int, max_keys: int | None) -> str:
    keys = max_keys if max_keys is not None and not limit.in_flight else head.slots * 3 // 4
    advice = "raise max_bytes" if max_keys is None else "raise max_bytes or lower max_keys"
    if limit.step is log:
        advice += ", or choose `by sliding-window/60`, which keeps 512 bytes a key"
    return (
        f"no room for {limit} in the shared store: it keeps {WORD * (1 + head.stride)} bytes a key, so {keys} keys "
        f"need {head.expected_size} bytes, and {max(0, left)} bytes are left; {advice}"
    )
