"""Limits: the value, its text form, and the words of that form that policies and answers use too."""

from headgate.limit.grammar import DATES, UNITS, parse_name, parse_period, write_period
from headgate.limit.scattered import phase_of
from headgate.limit.texts import Given, as_limits, stored_limit
from headgate.limit.value import COARSE, PAUSE, PAUSING, Limit, LimitWarning

__all__ = [
    "COARSE", "DATES", "PAUSE", "PAUSING", "UNITS", "Given", "Limit", "LimitWarning", "as_limits", "parse_name",
    "parse_period", "phase_of", "stored_limit", "write_period",
]  # fmt: skip
