"""The concurrency step: how many at once, each permit known by itself."""

from __future__ import annotations

from typing import Final

from headgate.algorithms.concurrency.reference import MOST, Params, answer, charge, fresh, give
from headgate.algorithms.contract import Verdict
from headgate.errors import InvalidLimit
from headgate.layout import PERMIT_WORDS, PERMITS_AT

__all__ = [
    "KIND",
    "LENDS",
    "SIZED",
    "Params",
    "answer",
    "at_grant",
    "charge",
    "fit",
    "fresh",
    "give",
    "kernel",
    "lend",
    "words",
]

KIND: Final = "concurrency"
LENDS: Final = False
SIZED: Final = True
SHORTEST: Final = 100_000
"""Microseconds: a lease is renewed four times in its life."""


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """A permit keeps 24 bytes in a table, so the limit has a ceiling; what is a period elsewhere is here the lease."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: all permits may be taken at once, so the burst is {amount}")
    if amount > MOST:
        raise InvalidLimit(f"{amount} are too many permits for one key; at most {MOST}")
    if period_us < SHORTEST:
        raise InvalidLimit(f"ttl: a lease is renewed in the background and lasts at least {SHORTEST // 1000} ms")
    return Params(amount, period_us)


def words(params: Params) -> int:
    """How many permits are out, how many units they are, and three words for each."""
    return PERMITS_AT + PERMIT_WORDS * params.limit


def kernel(params: Params) -> str:
    """One kernel serves every limit."""
    return "kernel"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """A permit is found by its own mark."""
    return mark


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Nobody knows when a permit comes back."""
    return refusal
