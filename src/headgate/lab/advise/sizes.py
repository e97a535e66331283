"""The bytes of a key, by algorithm and by store."""

from __future__ import annotations

import warnings
from typing import Final, NamedTuple

from headgate.algorithms import bucket, log
from headgate.clock import SECOND
from headgate.engine import slots_for, words_for
from headgate.errors import InvalidLimit
from headgate.lab.advise.needs import Needs
from headgate.layout import WORD
from headgate.limit import Limit, LimitWarning

SLOTS: Final = 60
COMPARED: Final = ("token-bucket", "fixed-window", "sliding-window", f"sliding-window/{SLOTS}", "sliding-log")
NAME_BYTES: Final = 72
"""Bytes of a name with a small value in Valkey 9.1, by MEMORY USAGE."""
INSTANT_BYTES: Final = 16
LOG_HEAD: Final = 40
FEW: Final = 128
"""A count below this takes one byte on a server, below 65,536 three, else five."""


class Size(NamedTuple):
    """The memory of the states of one algorithm."""

    algorithm: str
    key_bytes: int
    """For one key; 0 if the algorithm cannot keep the limit."""
    total: int
    """For all clients, in tables that are filled to three quarters, or on a server."""
    sees: str
    """The most that any period may see."""

    def fits(self, needs: Needs) -> bool:
        """Whether the states fit the memory."""
        return 0 < self.total <= needs.memory


def sizes(needs: Needs) -> dict[str, Size]:
    """Return the size of each algorithm that is compared."""
    return {algorithm: size_of(algorithm, needs) for algorithm in COMPARED}


def size_of(algorithm: str, needs: Needs) -> Size:
    """Return the bytes that an algorithm takes for these clients."""
    sees = _sees(algorithm, needs.amount)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LimitWarning)  # the advisor says the same
            limit = Limit(needs.amount, per=needs.period_us / SECOND, algorithm=algorithm)
    except InvalidLimit:
        return Size(algorithm, 0, 0, sees)
    if needs.store == "redis":
        each = _on_a_server(limit)
        return Size(algorithm, each, each * needs.clients, sees)
    each = WORD * (1 + words_for(limit))
    return Size(algorithm, each, each * slots_for(needs.clients), sees)


def _on_a_server(limit: Limit) -> int:
    """Return the bytes of a full state on a server, name and value, to within a tenth."""
    if limit.step is bucket:
        return NAME_BYTES + INSTANT_BYTES
    if limit.step is log:
        return NAME_BYTES + LOG_HEAD + WORD * limit.amount
    slots = int(limit.algorithm.partition("/")[2] or 0)
    count = 1 if limit.amount < FEW else 3 if limit.amount < 2**16 else 5
    return NAME_BYTES + (slots + WORD) * count if slots else NAME_BYTES


def _sees(algorithm: str, amount: int) -> str:
    if algorithm == "sliding-log":
        return f"{amount:,}"
    if algorithm.startswith("sliding-window/"):
        return f"{amount:,} in any {SLOTS - 1}/{SLOTS} of it"
    if algorithm == "sliding-window":
        return f"about {amount:,}, {2 * amount:,} at worst"
    if algorithm == "token-bucket":  # the whole burst, and all but the last unit that comes back
        return f"{2 * amount - 1:,}"
    return f"{2 * amount:,}"
