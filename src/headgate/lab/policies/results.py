"""The effect of a policy on a log: frozen values. `str` of a `PolicyReplay` is the text that the command prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.lab.comparison import Series
from headgate.lab.logs import LogFacts


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The work that one rule would have done."""

    name: str
    limits: str
    matched: int
    """Requests that it applies to."""
    refused: int
    shadowed: int
    """Requests that it would have answered in place of the app (`act: shadow`)."""
    observed: int
    """Requests that it would have refused, had it not only observed (`act: observe`)."""
    delayed: int
    longest_delay: float
    """Seconds."""
    clients: int
    """Clients among those that were refused, answered in place of the app, or observed."""


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """The work that one policy would have done."""

    name: str
    rules: tuple[RuleEffect, ...]
    refused: int
    """Requests that do not reach the app, by any rule or by `deny`."""
    denied: int
    """Those among them that `deny` refuses."""
    skipped: Mapping[str, str]
    """The parts of the policy that the log cannot answer, and what they need."""
    forgotten: int = 0
    """Keys whose states did not fit in memory: above 0, the figures are not exact."""


@dataclass(frozen=True, slots=True)
class ChangedClient:
    """A client that the new policy treats differently."""

    key: str
    requests: int
    changed: int
    """Requests that are newly refused, or newly let in."""
    errors: int


@dataclass(frozen=True, slots=True)
class Change:
    """The requests about which two policies differ, in one direction."""

    requests: int
    clients: int
    most: tuple[ChangedClient, ...]
    """The clients with the most such requests, at most ten."""


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """A log under a policy and, if one was given, under the policy before it."""

    requests: int
    clients: int
    new: PolicyEffect
    old: PolicyEffect | None
    newly_refused: Change | None
    let_in: Change | None
    log: LogFacts | None
    series: Series
    """Counts over time: refused by the new policy and, if there is one, by the old one."""

    def __str__(self) -> str:
        from headgate.lab.policies.table import table

        return table(self)
