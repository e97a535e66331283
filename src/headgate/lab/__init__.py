"""Experiments in virtual time: limits and policies on the requests of a log, or on made traffic."""

from headgate.lab.advise import Advice, BurstCurve, Needs, burst_curve, recommend
from headgate.lab.comparison import Comparison, Measured, RefusedClient, Series, Trailing, Waits, Wrong
from headgate.lab.logs import Log, LogFacts, Request
from headgate.lab.plain_data import plain
from headgate.lab.policies import Change, PolicyEffect, PolicyReplay, RuleEffect
from headgate.lab.race import Race, run_race
from headgate.lab.replaying import replay, replay_policy
from headgate.lab.report import About, html, versions
from headgate.lab.simulating import simulate
from headgate.lab.traffic import TRAFFIC, Scene

__all__ = [
    "TRAFFIC", "About", "Advice", "BurstCurve", "Change", "Comparison", "Log", "LogFacts", "Measured", "Needs",
    "PolicyEffect", "PolicyReplay", "Race", "RefusedClient", "Request", "RuleEffect", "Scene", "Series", "Trailing",
    "Waits", "Wrong", "burst_curve", "html", "plain", "recommend", "replay", "replay_policy", "run_race", "simulate",
    "versions",
]  # fmt: skip
