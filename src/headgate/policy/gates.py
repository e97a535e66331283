"""The gates of a policy: decisions over the limits of its rules, whose errors are for `on_error` of each rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.call import Call
from headgate.engine import Decision
from headgate.engine.arguments import checked_limits
from headgate.engine.modes import PEEK, RESERVE, TAKE
from headgate.limit import Limit
from headgate.stores import AsyncStore, Store
from headgate.stores.gate import Gate
from headgate.stores.gate_async import AsyncGate

_SOME: Final = (Limit(1, "hour", name="headgate"),)
"""A gate is opened for limits; a policy asks about those of its rules."""


class PolicyGate(Gate):
    """For threads, and for stores that answer at once."""

    def asker(self, limits: tuple[Limit, ...]) -> Callable[..., Decision]:
        """Decisions over these limits again and again: keys (or one for all) and costs, checked already."""
        return self._bound_to(checked_limits(limits)).run

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Several subjects, one decision; with a wait also for later."""
        return self._decide(calls, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)


class AsyncPolicyGate(AsyncGate):
    """For stores that are awaited."""

    def asker(self, limits: tuple[Limit, ...]) -> Callable[..., Awaitable[Decision]]:
        """See `PolicyGate.asker`."""
        bound = self._bound_to(checked_limits(limits))
        return lambda keys, costs: self._run(bound, keys, costs, TAKE)

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Awaitable[Decision]:  # type: ignore[override]
        """See `PolicyGate.decide`."""
        return self._decide(calls, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)


def gate_on(store: Store, namespace: str, awaited: bool = False) -> Any:  # noqa: ANN401 - of either kind
    """A gate for the rules of a policy; its questions are awaited where the edge and the store can."""
    kind = AsyncPolicyGate if awaited and isinstance(store, AsyncStore) else PolicyGate
    return kind(store, namespace, _SOME, "raise")
