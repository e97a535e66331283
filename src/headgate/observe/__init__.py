"""Watching: which keys are refused and busiest, log lines of refusals, and counts as metrics. A sink is one file."""

from headgate.observe.at_close import tell_of_end
from headgate.observe.keys import KeyWatch
from headgate.observe.shedders import shed_part
from headgate.observe.snapshot import LimiterPart, Snapshot, empty
from headgate.observe.snapshot_parts import key_parts, limiter_parts, rule_part, store_part, summed

__all__ = [
    "KeyWatch",
    "LimiterPart",
    "Snapshot",
    "empty",
    "key_parts",
    "limiter_parts",
    "rule_part",
    "shed_part",
    "store_part",
    "summed",
    "tell_of_end",
]
