"""The parts of policies that only the command line uses: a file is checked, a request is explained."""

from headgate.policy.explain import explain
from headgate.policy.found_keys import FoundKeys, found_keys
from headgate.policy.invented import inventions
from headgate.policy.schema import schema
from headgate.policy.source import Source, read_source

__all__ = ["FoundKeys", "Source", "explain", "found_keys", "inventions", "read_source", "schema"]
