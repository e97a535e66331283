"""The parts of policies that only the command line uses: a file is checked, a request is explained, a key operated."""

from headgate.policy.bans import Bans, blocks_of, checked_time
from headgate.policy.explain import explain
from headgate.policy.forgeable_keys import inventions
from headgate.policy.found_keys import FoundKeys, found_keys
from headgate.policy.schema import schema
from headgate.policy.source import Source, read_source

__all__ = [
    "Bans",
    "FoundKeys",
    "Source",
    "blocks_of",
    "checked_time",
    "explain",
    "found_keys",
    "inventions",
    "read_source",
    "schema",
]
