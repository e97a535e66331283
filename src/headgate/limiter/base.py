"""What the two limiters share: limits, a store, a namespace, and the gate they make together."""

from __future__ import annotations

from typing import get_args

from headgate.clock import Clock
from headgate.errors import StoreError
from headgate.limit import Given, as_limits
from headgate.stores import Gate, OnError, Store, open_store


class Bound:
    """Limits on a store."""

    store: Store
    _gate: Gate

    def __init__(
        self,
        *limits: Given,
        store: Store | str | None = None,
        namespace: str = "default",
        clock: Clock | None = None,
        on_error: OnError = "local",
    ) -> None:
        if not isinstance(namespace, str) or not namespace or "\0" in namespace:
            raise StoreError(f"a namespace is a str that is not empty and has no NUL; got {namespace!r}")
        if on_error not in get_args(OnError):
            raise StoreError(f"on_error is one of {', '.join(get_args(OnError))}; got {on_error!r}")
        self.namespace = namespace
        self.on_error = on_error
        self.limits = tuple(limit for given in limits for limit in as_limits(given))
        self._opened = open_store(store, clock)
        self._owned = self._opened is not store
        self.bind(self._opened)

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        self.store = store
        self._gate = store.gate(self.namespace, self.limits, self.on_error)

    def __repr__(self) -> str:
        words = "; ".join(map(str, self.limits))
        return f"{type(self).__name__}({words!r}, namespace={self.namespace!r})"
