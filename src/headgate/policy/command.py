"""The parts of policies that only the command line uses: a file is checked, a request is explained."""

from headgate.policy.explain import explain
from headgate.policy.invented import inventions
from headgate.policy.schema import schema
from headgate.policy.source import Source, read_source

__all__ = ["Source", "explain", "inventions", "read_source", "schema"]
