"""The counts of a limiter."""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    """The decisions of one limiter in one process, by their result. They only grow.

    A decision is the one answer that a caller gets: of `hit`, `take_up_to`, `decide`, `permit`, `acquire`, `reserve` or
    a function under `limited`, whatever its cost and however long it waits. A caller that is cancelled, or that gets an
    exception, has no answer. `peek`, `refund`, `release`, `reset`, `pause` and `settle` count nothing.
    """

    allowed: int
    """Admitted, also in part by `take_up_to`, and also after a wait."""
    refused: int
    """Refused, and told when to come back."""
    never: int
    """Refused for ever: the cost is above the burst."""
    degraded: int
    """Of all three, the answers that were given without the store, while it was away."""
