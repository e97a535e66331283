"""`Limiter`: the small API."""

from __future__ import annotations

from typing import Self

from headgate.call import Call, Cost
from headgate.engine import Decision
from headgate.limit import Given
from headgate.limiter.base import Bound
from headgate.limiter.guard import Guard, Key
from headgate.stores import Store


class Limiter(Bound):
    """Allow or not, and when to come back.

    >>> limiter = Limiter("10/second; 1000/hour burst 50")
    >>> if not (decision := limiter.hit("user:42")):
    ...     wait = decision.retry_after
    """

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        super().bind(store)
        # The hot calls are the engine's own bound methods: no Python frame between the caller and the answer.
        self.hit = self._gate.hit  # type: ignore[method-assign]
        self.peek = self._gate.peek  # type: ignore[method-assign]
        self.take_up_to = self._gate.take_up_to  # type: ignore[method-assign]

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend `cost` of every limit, or of none if any refuses.

        `cost` may name the limits: `{"rpm": 1, "tpm": 500}`. `limit` chooses other numbers for this call (a plan):
        same algorithm, period and name, so the same state.
        """
        return self._gate.hit(key, cost, limit=limit)

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer. Writes nothing."""
        return self._gate.peek(key, cost, limit=limit)

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now; `decision.granted` says how much. Refused when not even 1 fits."""
        return self._gate.take_up_to(key, n, limit=limit)

    def decide(self, *calls: Call) -> Decision:
        """Several limits and subjects, one decision: every call is charged or none is."""
        return self._gate.decide(*calls)

    def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back a decision, or part of it, at most once; or `n` units of a key, as if charged now."""
        self._gate.refund(charged, n)

    def reset(self, key: str) -> None:
        """Make the key as new."""
        self._gate.reset(key)

    def guard(self, key: Key, cost: Cost = 1) -> Guard:
        """A decorator (the key may be made from the arguments) or a context manager that raises `RateLimited`."""
        return Guard(self, key, cost)

    def close(self) -> None:
        """Let go of a store that this limiter opened itself; `with Limiter(...) as limiter:` does it too."""
        if self._owned and hasattr(self._opened, "close"):
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
