"""The gates of a policy: decisions over the limits of its rules. Errors are raised, for each rule's `on_error`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.call import Call
from headgate.engine import PEEK, RESERVE, TAKE, Decision
from headgate.limit import Limit
from headgate.stores import AsyncGate, AsyncStore, Gate, Store, checked_limits

_SOME: Final = (Limit(1, "hour", name="headgate"),)
"""A gate needs limits when it is made; a policy asks about those of its rules instead."""


class PolicyGate(Gate):
    """A gate for threads, and for stores that answer without being awaited."""

    def asker(self, limits: tuple[Limit, ...]) -> Callable[..., Decision]:
        """Return a function that decides over these limits, given keys (or one for all) and costs, unchecked."""
        return self._bound_to(checked_limits(limits)).run

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        """Take one decision over several calls; with `wait_us`, also reserve in the future."""
        return self._decide(calls, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)


class AsyncPolicyGate(AsyncGate):
    """A gate for stores that are awaited."""

    def asker(self, limits: tuple[Limit, ...]) -> Callable[..., Awaitable[Decision]]:
        """See `PolicyGate.asker`."""
        bound = self._bound_to(checked_limits(limits))
        return lambda keys, costs: self._run(bound, keys, costs, TAKE)

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Awaitable[Decision]:  # type: ignore[override]
        """See `PolicyGate.decide`."""
        return self._decide(calls, PEEK if peek else RESERVE if wait_us else TAKE, wait_us)


def gate_on(store: Store, namespace: str, awaited: bool = False) -> Any:  # noqa: ANN401 - of either kind
    """Return a gate for the rules of a policy; an async one if the edge awaits and the store can be awaited."""
    kind = AsyncPolicyGate if awaited and isinstance(store, AsyncStore) else PolicyGate
    return kind(store, namespace, _SOME, "raise")
