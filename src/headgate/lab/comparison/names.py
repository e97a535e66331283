"""Names of the limits of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.lab.comparison.results import Measured
from headgate.limit import Limit


def rate(limit: Limit) -> str:
    """Return the amount per period."""
    return f"{limit.amount}/{limit.per}"


def names(measured: Sequence[Measured]) -> list[str]:
    """Return a short name for each limit: its algorithm, if the limits have nothing else that differs."""
    if same_numbers(measured):
        return [_algorithm(each.limit) for each in measured]
    return [f"{rate(each.limit)} queue {each.limit.burst}" if each.waits else str(each.limit) for each in measured]


def title(measured: Sequence[Measured]) -> str:
    """Return what is compared."""
    if same_numbers(measured):
        return f"{rate(measured[0].limit)} by {len(measured)} algorithms"
    return names(measured)[0] if len(measured) == 1 else f"{len(measured)} limits compared"


def same_numbers(measured: Sequence[Measured]) -> bool:
    """Whether several limits of the same numbers are compared, none of them a queue."""
    numbers = {(each.limit.amount, each.limit.period_us, each.limit.block_us) for each in measured}
    return len(measured) > 1 and len(numbers) == 1 and not any(each.waits for each in measured)


def _algorithm(limit: Limit) -> str:
    return limit.algorithm + (f" burst {limit.burst}" if limit.burst != limit.amount else "")
