"""The mode of a policy, and of its load shedder: whether it refuses, only counts, or does nothing."""

from __future__ import annotations

from typing import Final, Literal, cast, get_args

from headgate.policy.field_types import Field
from headgate.policy.parser import Parser
from headgate.policy.source import Path_

Mode = Literal["enforce", "observe", "off"]
MODE: Final = Field(
    "enforce: refuse. observe: admit all requests, and count those that enforce would refuse. off: do nothing. "
    "Default: enforce.",
    {"enum": [*get_args(Mode), False]},
)
STRICTNESS: Final[tuple[Mode, ...]] = ("off", "observe", "enforce")


def read_mode(parser: Parser, value: object, path: Path_) -> Mode:
    """Read a mode."""
    word = "off" if value is False else value  # YAML reads a plain off as false
    return cast("Mode", parser.one_of(word, path, get_args(Mode)) or "enforce")


def milder(one: Mode, other: Mode) -> Mode:
    """Return the mode of the two that refuses less."""
    return min(one, other, key=STRICTNESS.index)
