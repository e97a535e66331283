"""Limits: the value and its words."""

from headgate.limit.concurrency import Concurrency
from headgate.limit.value import Given, Limit, LimitWarning, Period, as_limits

__all__ = ["Concurrency", "Given", "Limit", "LimitWarning", "Period", "as_limits"]
