"""The lanes of the playground: one algorithm each, on the real engine, and what its row shows."""

from __future__ import annotations

import warnings
from collections import deque
from typing import Any, Final, NamedTuple

from headgate.clock import HandClock, write_seconds
from headgate.engine import Decision
from headgate.lab import Trailing
from headgate.limit import Limit, LimitWarning
from headgate.limiter import Limiter
from headgate.shaper import Shaper
from headgate.stores import MemoryStore

CLIENT: Final = "you"
SLOTS: Final = 6
KEPT_ANSWERS: Final = 2_000
"""Answers that can still be shown whole."""


class Answer(NamedTuple):
    """The answer of one lane to one request."""

    number: int
    """The number of the request in its world."""
    time: int
    decision: Decision
    delay: int = 0
    """For the queue: the microseconds until the request leaves."""


class Lane:
    """One algorithm. All times are microseconds of the world; all numbers that the page shows are counted here."""

    words = ""
    knows_windows = False
    """Whether the algorithm itself knows where windows begin."""

    def __init__(self, name: str, limit: Limit, clock: HandClock) -> None:
        self.name = name
        self.limit = limit
        self._ask = Limiter(limit, clock=clock)
        self._trailing = Trailing(limit.period_us)
        self._peak = 0
        self._changes: list[tuple[int, int]] = []
        self.answers: deque[Answer] = deque(maxlen=KEPT_ANSWERS)
        self.passed = self.refused = self.most = self.admitted = 0

    def begin_bin(self, number: int, start: int) -> None:
        """Begin a bin: its peak is at least what passed in the period that ends where the bin begins."""
        self._peak = self._trailing.at(start)
        self._note(number)

    def request(self, number: int, time: int, bin_number: int) -> bool:
        """Ask about a request; True if it passes, or gets a place in the queue."""
        decision = self._ask.hit(CLIENT)
        self.answers.append(Answer(number, time, decision))
        if decision.allowed:
            self.admitted += 1
            self._pass(time, bin_number)
        else:
            self.refused += 1
        return decision.allowed

    def _pass(self, time: int, bin_number: int) -> None:
        self.passed += 1
        self._trailing.at(time)
        units = self._trailing.add(time, 1)
        if units > self.most:
            self.most = units
        if units > self._peak:
            self._peak = units
            self._note(bin_number)

    def _note(self, bin_number: int) -> None:
        if self._changes and self._changes[-1][0] == bin_number:
            self._changes.pop()
        if not self._changes or self._changes[-1][1] != self._peak:
            self._changes.append((bin_number, self._peak))

    def leave(self, until: int, bin_number: int) -> list[int]:
        """Let requests leave that have waited until now; return their times. Only a queue makes requests wait."""
        return []

    def within(self, time: int) -> int:
        """Return the units that passed in the period up to this instant, which is the present one."""
        return self._trailing.at(time)

    def next_yes(self, time: int) -> int:
        """Return the microseconds until the next request would pass; 0 if it would now."""
        return max(0, self._ask.peek(CLIENT).retry_us)

    def glyph(self, time: int) -> list[float]:
        """Return the numbers that its picture shows."""
        raise NotImplementedError

    def frame(self, time: int) -> dict[str, Any]:
        """Return the numbers of the row, and the changes of its curve since the last frame."""
        changes, self._changes = self._changes, []
        return {
            "p": self.passed, "r": self.refused, "m": self.most, "n": self.next_yes(time),
            "c": [value for change in changes for value in change], "g": self.glyph(time),
        }  # fmt: skip

    def told(self, answer: Answer) -> str:
        """Return a whole answer in words."""
        decision = answer.decision
        if decision.allowed:
            said = f"yes; {decision.remaining} of {decision.limit} left, all of them in {_seconds(decision.reset_us)}"
        else:
            said = f"no; the next yes is in {_seconds(decision.retry_us)}"
        return f"{self.name}, request {answer.number}: {said}"


class Bucket(Lane):
    """A token bucket."""

    words = "refills evenly. gcra and the leaky meter are the same equation"

    def glyph(self, time: int) -> list[float]:
        """The part of the bucket that is full."""
        empty = self._ask.peek(CLIENT, cost=0).reset_us * self.limit.amount / self.limit.period_us
        return [round(max(0.0, 1 - empty / self.limit.burst), 3)]


class Queue(Lane):
    """A leaky bucket as a queue: requests wait, leave evenly, and are dropped when the queue is full."""

    words = "requests wait in a queue and leave evenly"

    def __init__(self, name: str, limit: Limit, clock: HandClock) -> None:
        super().__init__(name, limit, clock)
        store = MemoryStore(clock=clock)
        self._shaper = Shaper(limit, store=store, namespace=name)
        self._ask = Limiter(limit, store=store, namespace=name)  # sees the same queue
        self._waiting: deque[int] = deque()
        self.longest = 0
        """The longest wait."""

    def request(self, number: int, time: int, bin_number: int) -> bool:
        """Take a place in the queue, if there is room."""
        departure = self._shaper.enter(CLIENT)
        self.answers.append(Answer(number, time, departure.decision, departure.delay_us))
        if not departure:
            self.refused += 1
            return False
        self.admitted += 1
        self.longest = max(self.longest, departure.delay_us)
        self._waiting.append(time + departure.delay_us)
        return True

    def leave(self, until: int, bin_number: int) -> list[int]:
        """Let requests leave whose time has come."""
        left = []
        while self._waiting and self._waiting[0] <= until:
            left.append(self._waiting.popleft())
            self._pass(left[-1], bin_number)
        return left

    def glyph(self, time: int) -> list[float]:
        """The part of the queue that is full, and how many wait."""
        return [round(len(self._waiting) / self.limit.burst, 3), len(self._waiting)]

    def frame(self, time: int) -> dict[str, Any]:
        """Return the same numbers, and the longest wait."""
        return {**super().frame(time), "w": self.longest}

    def told(self, answer: Answer) -> str:
        """Return a whole answer in words."""
        if not answer.decision.allowed:
            return f"{self.name}, request {answer.number}: dropped, the queue is full"
        return f"{self.name}, request {answer.number}: leaves after {_seconds(answer.delay)}"


class Windows(Lane):
    """Windows that are aligned to the clock: fixed, sliding, or divided into slots."""

    knows_windows = True
    slots = 0

    def __init__(self, name: str, limit: Limit, clock: HandClock) -> None:
        super().__init__(name, limit, clock)
        self._counts: dict[int, int] = {}
        """Passed requests by slot."""

    def _pass(self, time: int, bin_number: int) -> None:
        super()._pass(time, bin_number)
        slot = self._slot(time)
        self._counts[slot] = self._counts.get(slot, 0) + 1
        for old in [each for each in self._counts if each < slot - self.slots]:
            del self._counts[old]

    def _slot(self, time: int) -> int:
        return time * max(1, self.slots) // self.limit.period_us

    def glyph(self, time: int) -> list[float]:
        """The counts of the slots, the oldest first, as parts of the limit; last, the part of a slot that is over."""
        now, amount, period = self._slot(time), self.limit.amount, self.limit.period_us
        counts = [self._counts.get(now - age, 0) / amount for age in range(self.slots, -1, -1)]
        over = time * max(1, self.slots) % period / period
        return [round(each, 3) for each in (*counts, over)]


class Fixed(Windows):
    """One counter."""

    words = "one counter that forgets everything at the seam"


class Sliding(Windows):
    """Two counters."""

    words = "two counters, the old one fading away"
    slots = 1


class Divided(Windows):
    """Sub-windows."""

    words = "six small windows: nearly exact"
    slots = SLOTS


class Log(Lane):
    """A stamp for every request."""

    words = "remembers every request: exact, and pays for it"

    def glyph(self, time: int) -> list[float]:
        """The number of requests that it remembers."""
        return [self.within(time)]


KINDS: Final = (
    ("token-bucket", Bucket), ("leaky-bucket", Queue), ("fixed-window", Fixed), ("sliding-window", Sliding),
    (f"sliding-window/{SLOTS}", Divided), ("sliding-log", Log),
)  # fmt: skip


def lanes_of(limit: Limit, clock: HandClock) -> list[Lane]:
    """Return the six lanes of a limit; the bucket alone has its burst."""
    lanes: list[Lane] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)  # the playground shows on purpose that two counters are coarse
        for name, kind in KINDS:
            burst = limit.burst if kind is Bucket else None
            lanes.append(kind(name, Limit(limit.amount, limit.period, burst=burst, algorithm=name), clock))
    return lanes


def _seconds(us: int) -> str:
    return f"{write_seconds(us)} s"
