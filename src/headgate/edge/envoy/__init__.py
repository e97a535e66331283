"""The drop-in for envoyproxy/ratelimit: its files, its matching and its messages, over the stores of Headgate."""

from headgate.edge.envoy.limits import EnvoyLimits

__all__ = ["EnvoyLimits"]
