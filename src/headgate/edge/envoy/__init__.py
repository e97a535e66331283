"""The drop-in for envoyproxy/ratelimit: its files, its matching and its messages, over the stores of Headgate."""

from headgate.edge.envoy.limits import EnvoyLimits
from headgate.edge.envoy.reader import read_domains

__all__ = ["EnvoyLimits", "read_domains"]
