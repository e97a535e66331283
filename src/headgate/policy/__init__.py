"""Policies: the limited requests, the keys they are counted by, and the form of a refusal."""

from headgate.policy.address import Networks, counted
from headgate.policy.policy import Policy
from headgate.policy.proxies import Proxies
from headgate.policy.view import RequestView

__all__ = ["Networks", "Policy", "Proxies", "RequestView", "counted"]
