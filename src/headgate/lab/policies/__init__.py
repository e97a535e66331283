"""A log under a policy, rule by rule."""

from headgate.lab.policies.replaying import PolicyMeasurement
from headgate.lab.policies.results import Change, ChangedClient, PolicyEffect, PolicyReplay, RuleEffect

__all__ = ["Change", "ChangedClient", "PolicyEffect", "PolicyMeasurement", "PolicyReplay", "RuleEffect"]
