"""The caption: one sentence that tells what just happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.clock import write_seconds
from headgate.limit import Limit
from headgate.playground.lanes import Lane

INVITATION: Final = (
    "Attack the seam: a client sends its whole limit just before a window ends, and again just after. "
    "Which algorithms let twice the limit pass?"
)
REASONS: Final = {
    "token-bucket": "what it had saved, and what was refilled meanwhile",
    "fixed-window": "it forgot the first {amount} when the window ended",
    "sliding-window": "it takes the requests of the last window as evenly spread",
    "sliding-window/6": "it takes the requests of its oldest slot as evenly spread",
}
"""Why more than the limit passed in a period; neither the queue nor the log can let that happen."""
REMARKABLE = 1.5
"""The multiple of the limit that replaces the invitation, while the user has done nothing yet."""


class Caption:
    """Tells of the lane that let the most pass in a period, whenever that becomes worse, and of bursts."""

    def __init__(self, limit: Limit) -> None:
        self.text = INVITATION
        self._limit = limit
        self._worst = int(limit.amount * REMARKABLE)

    def begin(self) -> None:
        """Tell of everything above the limit: the user has done something."""
        self._worst = min(self._worst, self._limit.amount)

    def watch(self, lanes: Sequence[Lane], time: int) -> None:
        """Tell of a new worst; the exact log is counted over the same period."""
        worst = max(lanes, key=lambda lane: lane.most)
        if worst.most <= self._worst:
            return
        self._worst = worst.most
        limit, exact = self._limit, lanes[-1]
        reason = REASONS[worst.name].format(amount=limit.amount)
        self.text = (
            f"{worst.name} let {worst.most} pass within {write_seconds(limit.period_us)} s, "
            f"{worst.most / limit.amount:.1f} times the limit: {reason}. "
            f"{exact.name} let {exact.within(time)} pass."
        )

    def tell_burst(self, lanes: Sequence[Lane], before: Sequence[int], size: int) -> None:
        """Tell how many requests of a burst each algorithm admitted."""
        admitted = [f"{lane.name} {lane.admitted - earlier}" for lane, earlier in zip(lanes, before, strict=True)]
        self.text = f"Of {size} requests at once passed: {', '.join(admitted[:-1])} and {admitted[-1]}."
