"""Conditions that compare numbers: `{header: {x-bot-score: {below: 30}}}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from headgate.policy.field_types import Field, Fields
from headgate.policy.parser import Parser
from headgate.policy.source import Path_
from headgate.wording import shown

RANGE: Final[Fields] = {
    "below": Field("The value is a number below this one.", {"type": "number"}),
    "above": Field("The value is a number above this one.", {"type": "number"}),
}
# At most 15 digits, so that two different numbers are never the same float.
_NUMBER: Final = re.compile(r"-?(?=[0-9.]{1,16}\Z)[0-9]{1,15}(?:\.[0-9]{1,14})?")
MOST: Final = 10**15


def read_range(parser: Parser, value: Mapping[str, object], path: Path_) -> Callable[[str], bool]:
    """Read `below`, `above` or both; return a test of a text. A text that is no number is in no range."""
    given = parser.fields(value, path, RANGE)
    bounds = {"above": -inf, "below": inf}
    for name, bound in given.items():
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not -MOST < bound < MOST:
            parser.error((*path, name), f"expected a number of at most 15 digits; got {shown(bound)}")
        else:
            bounds[name] = bound
    above, below = bounds["above"], bounds["below"]
    if not given:
        parser.error(path, f"expected below or above, as in {{below: 30}}; got {shown(value)}")
    elif above >= below:
        parser.error(path, f"no number is above {above} and below {below}")

    def fits(text: str) -> bool:
        return _NUMBER.fullmatch(text) is not None and above < float(text) < below

    return fits
