"""Policies: who is limited, counted by what, and what a no looks like."""

from headgate.policy.address import Networks, Proxies, counted
from headgate.policy.policy import Policy
from headgate.policy.view import RequestView

__all__ = ["Networks", "Policy", "Proxies", "RequestView", "counted"]
