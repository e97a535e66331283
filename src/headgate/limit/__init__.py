"""Limits: the value, and its text form."""

from headgate.limit.value import Given, Limit, LimitWarning, Period, as_limits

__all__ = ["Given", "Limit", "LimitWarning", "Period", "as_limits"]
