"""Policies: the limited requests, the keys they are counted by, and the form of a refusal."""

from headgate.policy.address import Networks, Proxies, counted
from headgate.policy.policy import Policy
from headgate.policy.view import RequestView

__all__ = ["Networks", "Policy", "Proxies", "RequestView", "counted"]
