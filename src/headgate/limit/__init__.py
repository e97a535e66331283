"""Limits: the value, its text form, and the words of that form that policies and answers use too."""

from headgate.limit.fields import Period, microseconds
from headgate.limit.grammar import DATES, UNITS, parse_name, parse_period, write_period
from headgate.limit.pauses import LONGEST_BAN, PAUSE, PAUSING, ban_limit
from headgate.limit.scattered import phase_of
from headgate.limit.texts import Given, as_limits, stored_limit
from headgate.limit.value import COARSE, Limit, LimitWarning

__all__ = [
    "COARSE", "DATES", "LONGEST_BAN", "PAUSE", "PAUSING", "UNITS", "Given", "Limit", "LimitWarning", "Period",
    "as_limits", "ban_limit", "microseconds", "parse_name", "parse_period", "phase_of", "stored_limit", "write_period",
]  # fmt: skip
