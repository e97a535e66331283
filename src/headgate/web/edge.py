"""The public methods of an app's limits in every framework: read the policy, operate one key, reload, close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, AnyStr, Final, Generic

from headgate.observe import Snapshot
from headgate.policy import Policy
from headgate.policy.edges import CountedRule, RuleCounts, RuleKeys, check_no_loop
from headgate.shed import LoadShedder
from headgate.web.edge_snapshot import snapshot_of
from headgate.web.rules_by_name import counted_rule
from headgate.wording import Renamed

if TYPE_CHECKING:
    from headgate.web.runtime import Runtime


NOW: Final = "write frozen(limits), disabled(limits), reset_all(limits), limits.policy, limits.reload(), limits.close()"
"""The replacements of attributes that were removed."""


class Edge(RuleKeys, Generic[AnyStr]):
    """The base of every extension, middleware and interceptor: `frozen(limits)`, `limits.reload()`."""

    if not TYPE_CHECKING:
        door = Renamed(NOW)
        runtime = Renamed(NOW)

    _runtime: Runtime[AnyStr]

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._runtime.policy

    @property
    def shedder(self) -> LoadShedder | None:
        """The load shedder of the policy's `shed`, for its `stats()` and its `mode`; None if there is none."""
        return self._runtime.shedder

    def _counted(self, rule: str) -> CountedRule:
        return counted_rule(self._runtime, rule)

    def _check_thread(self, verb: str) -> None:
        if self._runtime.awaited:
            check_no_loop(verb)

    def counts(self) -> Mapping[str, RuleCounts]:
        """Return the decisions of each rule in this process, by their result; they only grow, also over a reload.

        Under "(policy)" are decisions that no rule makes: of the policy's `allow` and `deny`, and on unclear requests.
        """
        return self._runtime.counts.values()

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return everything that was counted in this process: rules, stores, and the keys refused most and busiest.

        Without `keys`, the lists of keys are empty, which is much quicker.
        """
        return snapshot_of(self._runtime, keys)

    def reload(self) -> bool:
        """Read the policy's file again; False if the policy stays as it was. For a signal handler."""
        return self._runtime.reload()

    def close(self) -> None:
        """Close the stores that were opened here."""
        self._runtime.close()

    async def aclose(self) -> None:
        """Close the stores that were opened here, in an event loop."""
        await self._runtime.aclose()
