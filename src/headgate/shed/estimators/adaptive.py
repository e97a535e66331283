"""The default estimator: it finds the limit by dips.

Latency alone cannot say whether a request was slow because it waited behind others, which a lower limit mends, or
because the service has become slow, which it does not. The estimator asks: now and then it admits half as many requests
for a moment. If half as many are much quicker, the rest was queue, and the limit goes down to where the queue begins.
If they are not, the slowness has another cause, and the limit may grow.

Between dips the limit follows latency: it grows while the mean stays near the base (the latency without a queue), and
shrinks by the ratio of the two. `Cohort` says how a mean is measured, and why.
"""

from __future__ import annotations

import math

from headgate.clock import MILLISECOND, SECOND
from headgate.forks import after_fork
from headgate.shed.estimators.cohort import Cohort

NEAR = 1.25
"""The limit is kept where the mean latency is this multiple of the base..."""
NEAR_UNREFUSED = 2.0
"""...or this one, while under one request in twenty is refused: a short queue is better than a refusal."""
SLOW = 2.0
"""A dip is due where the mean latency, smoothed, exceeds this multiple of the base."""
QUICKER = 0.75
"""Where half as many requests take less than this part of the time, there was a queue, and half of it may still be."""
SAME = 0.85
"""Where half as many requests take more than this part of the time, their number is not what slows them."""
RISE = 1.5
"""A base that seems to have risen by more than this is measured a second time."""
PART = 0.03
"""Dips take at most this part of the time, in the long run."""
FEW_IGNORED = 0.05
"""Where a larger part of the requests says nothing, a fleet may keep the number in flight low, and the latency of the
others is no base: it may be queue."""
PAUSE = 400 * MILLISECOND
"""How long requests are not measured after a cohort that used at most half of the limit."""
FIRST_DIP = 150 * MILLISECOND
"""The time that the first dip is taken to need: it is due after five seconds at the limit, if the base is a guess."""
SAVED = 10 * SECOND
"""Time for dips that can be saved up; an overload may need several dips in a row."""


class Adaptive:
    """The largest limit at which requests do not wait for each other much."""

    def __init__(self, initial: int = 20, least: int = 1, most: int = 1000) -> None:
        self.limit = self.undipped = initial
        self.base = 0.0
        self.dips = True
        self.idle_until = 0
        self._least, self._most = least, most
        self._level = float(initial)
        """The limit, before it is rounded down."""
        self._smoothed = 0.0
        self._idle_base = False
        """Whether the base was measured while requests did not wait for each other."""
        self._doubling = True
        """Whether the limit grows by half at a time, which it does until latency rises."""
        self._cut: tuple[float, float] | None = None
        """The level and the latency at which the limit began to shrink; None while it does not shrink."""
        self._before_drops = 0.0
        """The level before requests were dropped, until the limit has come back."""
        self._levels: list[tuple[float, float]] = []
        """The levels of the dip that is under way and their latencies; the first is the one before the dip."""
        self._to_the_bottom = False
        self._second_look = False
        self._dip_began = self._dip_took = self._full_for = 0
        self._saved, self._saved_at = float(SAVED), 0
        self._open(Cohort(self._close, 0, 1))
        after_fork(self._forget_members)

    def _forget_members(self) -> None:
        """Measure by other requests in a forked child: those of its parent do not end there."""
        self._open(Cohort(self._close, self._cohort.opened, self._cohort.mark + 1))

    def refuse(self, now: int) -> None:
        """Note that the limit was reached."""
        self._cohort.refused += 1
        self.idle_until = 0

    def _open(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self.begin, self.end = cohort.begin, cohort.end  # no call in between: every request passes here

    def _close(self, now: int, cohort: Cohort) -> None:
        """Move the limit by a cohort that has ended, and open the next."""
        self._learn(now, cohort)
        self._level = max(self._least, min(self._most, self._level))
        self.limit = self.undipped = int(self._level)
        if self._levels:
            self.undipped = max(self.limit, int(self._levels[0][0]))
        idle = not (cohort.refused or self._levels or self._before_drops) and cohort.most_in_flight <= self._level / 2
        self.idle_until = now + PAUSE if idle else 0
        self._open(Cohort(self._close, max(now, self.idle_until), cohort.mark + 1, cohort.next_size()))

    def _learn(self, now: int, cohort: Cohort) -> None:
        if cohort.dropped_part() > 0.1:
            self._back_off()
        elif not cohort.samples:
            return
        elif self._levels:
            self._dip_further(now, cohort)
        elif self._before_drops:
            self._come_back()
        else:
            self.base = self.base or cohort.mean()
            self._smoothed = self._smoothed or cohort.mean()
            self._smoothed += 0.3 * (cohort.mean() - self._smoothed)
            if cohort.refused or cohort.most_in_flight >= 0.9 * self._level:
                self._follow(now, cohort)
            elif cohort.most_in_flight <= self._level / 2 and cohort.ignored_part() <= FEW_IGNORED:
                self.base += 0.2 * (cohort.mean() - self.base)
                self._idle_base = True

    # The limit follows latency.

    def _follow(self, now: int, cohort: Cohort) -> None:
        level, latency, error = self._level, cohort.mean(), cohort.error()
        self._full_for += now - cohort.opened
        if level < 4:  # so few can hardly wait for each other, and fewer cannot be tried
            self.base += 0.3 * (latency - self.base)
        shrunk_in_vain = self._cut is not None and level < 0.7 * self._cut[0] and latency > SAME * self._cut[1]
        near = (NEAR if cohort.refused_part() >= 0.05 else NEAR_UNREFUSED) + error
        if latency <= near * self.base:
            self._level = level * 1.5 + 1 if self._doubling else level + math.sqrt(level)
            self._cut = None
        else:
            self._doubling = False
            self._cut = self._cut or (level, latency)
            self._level = level * max(0.5, near * self.base / latency)
        due = PART * self._full_for > (self._dip_took or (math.inf if self._idle_base else FIRST_DIP))
        if self._may_dip(now) and (due or shrunk_in_vain or self._smoothed > (SLOW + error) * self.base):
            self._to_the_bottom = due or not self._idle_base
            self._dip(now, level, latency)

    # Dips

    def _may_dip(self, now: int) -> bool:
        self._saved = min(SAVED, self._saved + PART * (now - self._saved_at))
        self._saved_at = now
        return self.dips and self._saved > 0

    def _dip(self, now: int, level: float, latency: float) -> None:
        self._levels = [(level, latency)]
        self._dip_began = now
        self._level = max(self._least, level / 2)

    def _dip_further(self, now: int, cohort: Cohort) -> None:
        """Halve the level once more, or end the dip."""
        level, latency, above = self._level, cohort.mean(), self._levels[-1][1]
        self._levels.append((level, latency))
        self._saved -= now - cohort.opened
        at_base = not self._to_the_bottom and latency <= (NEAR + cohort.error()) * self.base
        if latency < QUICKER * above and level > self._least and not at_base:
            self._level = max(self._least, level / 2)
            return
        self._dip_took = now - self._dip_began
        self._full_for = 0
        self._cut = None
        levels, self._levels = self._levels, []
        if latency > RISE * self.base and not self._second_look:
            self._second_look = True
            self._dip(now, *levels[0])
            return
        self._second_look = False
        if not at_base:
            close = 0.7 * self.base <= latency <= 1.4 * self.base
            self.base = (self.base + latency) / 2 if close else latency
            self._idle_base = True
        self._smoothed = self.base
        self._resume(levels)

    def _resume(self, levels: list[tuple[float, float]]) -> None:
        """Choose the limit after a dip."""
        (before, slow), (_, half) = levels[:2]
        self._doubling = half > SAME * slow
        if self._doubling:
            self._level = before
        else:
            best = max(level * min(1.0, NEAR * self.base / latency) for level, latency in levels)
            self._level = best + math.sqrt(best)

    # Requests are dropped.

    def _back_off(self) -> None:
        level = self._levels[0][0] if self._levels else self._level
        self._before_drops = max(self._before_drops, level)
        self._levels, self._second_look = [], False
        self._level /= 2

    def _come_back(self) -> None:
        """Double the limit up to half of what it was; from there on it follows latency again."""
        if self._level >= self._before_drops / 2:
            self._before_drops = 0.0
            self._smoothed = self.base
        else:
            self._level = min(self._level * 2, self._before_drops / 2)
