"""Experiments in virtual time: limits and policies on the requests of a log, or on made traffic."""

from headgate.lab.comparison import Comparison, Measured, RefusedClient, Series, Waits, Wrong
from headgate.lab.logs import Log, LogFacts, Request
from headgate.lab.plain_data import plain
from headgate.lab.policies import PolicyReplay
from headgate.lab.replaying import replay, replay_policy
from headgate.lab.simulating import simulate
from headgate.lab.traffic import TRAFFIC

__all__ = [
    "TRAFFIC", "Comparison", "Log", "LogFacts", "Measured", "PolicyReplay", "RefusedClient", "Request", "Series",
    "Waits", "Wrong", "plain", "replay", "replay_policy", "simulate",
]  # fmt: skip
