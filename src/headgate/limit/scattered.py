"""Scattered windows: the seam of each key is shifted by a hash of the key, so that not all keys begin at one instant.

The hash is keyed with the namespace, so a key has the same shift in every process and on every store.
"""

from __future__ import annotations

from typing import Final

from headgate.algorithms import EXACT, bounds

PHASES: Final = 256
"""The number of different shifts, evenly over a period."""


def phase_of(namespace: str, key: str) -> int:
    """Return which of the shifts a key has."""
    from hashlib import blake2b  # loaded for scattered limits only

    secret = blake2b(namespace.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=1, key=secret).digest()[0]


def scattered_seams(period_us: int, phase: int, now_us: int) -> tuple[int, ...]:
    """Return the beginnings of the window before an instant's, of its own, and of the three that follow."""
    shift = phase * period_us // PHASES
    begin = (now_us + period_us - shift) // period_us * period_us - period_us + shift
    return tuple(min(max(0, begin + ahead * period_us), EXACT - 1) for ahead in range(-1, bounds.SEAMS - 1))
