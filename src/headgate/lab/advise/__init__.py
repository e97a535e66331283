"""Advice: which algorithm serves some needs, and which rate and burst serve the clients of a log."""

from headgate.lab.advise.advice import Advice
from headgate.lab.advise.choice import recommend
from headgate.lab.advise.curve import BurstCurve, burst_curve
from headgate.lab.advise.needs import Needs

__all__ = ["Advice", "BurstCurve", "Needs", "burst_curve", "recommend"]
