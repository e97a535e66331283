"""Estimators: how many requests may be in flight, worked out from those that were."""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import InvalidCall
from headgate.shed.estimators.adaptive import Adaptive
from headgate.shed.estimators.aimd import AIMD
from headgate.shed.estimators.contract import Estimator
from headgate.shed.estimators.fixed import Fixed
from headgate.shed.estimators.gradient2 import Gradient2
from headgate.shed.estimators.vegas import Vegas
from headgate.wording import shown

__all__ = ["AIMD", "Adaptive", "Estimator", "Fixed", "Gradient2", "Vegas"]

ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "adaptive": Adaptive,
    "aimd": AIMD,
    "vegas": Vegas,
    "gradient2": Gradient2,
}

MOST = 1_000_000_000
"""The highest limit: the engine counts in machine words."""


def estimator_of(limit: int | str | Estimator) -> Estimator:
    """Return the estimator that `limit` means: a number, a name, or an estimator."""
    if isinstance(limit, str):
        if limit not in ESTIMATORS:
            raise InvalidCall(f"unknown limit {shown(limit)}: write a number, or one of {', '.join(ESTIMATORS)}")
        return ESTIMATORS[limit]()
    if isinstance(limit, bool) or (isinstance(limit, int) and not 1 <= limit <= MOST):
        raise InvalidCall(f"a limit is a number of requests in flight, from 1 to {MOST}; got {shown(limit)}")
    if isinstance(limit, int):
        return Fixed(limit)
    if not hasattr(limit, "undipped"):
        raise InvalidCall(
            f"a limit is a whole number, one of {', '.join(ESTIMATORS)}, or an estimator; got {shown(limit)}"
        )
    return limit
