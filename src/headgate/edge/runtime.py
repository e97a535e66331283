"""The runtime of a service: a policy and a store, without an app behind them."""

from __future__ import annotations

from headgate.edge.limit_check import NamedLimits
from headgate.edge.original_request import ORIGINALS
from headgate.edge.service_policy import applied
from headgate.observe import Snapshot, limiter_parts
from headgate.policy import Policy
from headgate.web import Runtime, WebOptions, snapshot_of
from headgate.wording import log_of

log = log_of("headgate.edge")


class EdgeRuntime(Runtime[bytes]):
    """A policy that rules on requests which others serve."""

    def __init__(self, policy: str | None, store: str, hash_addresses: bool = False) -> None:
        self.notes: tuple[str, ...] | None = None
        """Notes on the parts of the current policy that a service does not apply; None before there is a policy."""
        super().__init__(policy, ORIGINALS, WebOptions(store=store, hash_addresses=hash_addresses), awaited=True)
        self.plain = NamedLimits(self.store)
        """The limits of plain questions, which no policy has."""

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return everything that was counted in this process."""
        total = snapshot_of(self, keys)
        total["limiters"] += limiter_parts(self.plain.limiters())
        return total

    def select(self, policy: Policy) -> Policy:
        """Leave out what needs a response; name that in the log, for a policy that is read again."""
        part, notes = applied(policy)
        if self.notes is not None:
            for note in notes:
                log.warning(note)
        self.notes = notes
        return part
