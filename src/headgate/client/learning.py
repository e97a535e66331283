"""The limits of a key: those that its user published, and those that its server tells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headgate.client.guessed_window import GuessedWindow
from headgate.client.pacing import REQUESTS, UNLIMITED, counts_tokens, named, paced
from headgate.client.quota_left import QuotaLeft
from headgate.client.server_limits import ServerLimit
from headgate.client.token_window import windows_of
from headgate.clock import MILLISECOND, SECOND
from headgate.errors import InvalidLimit
from headgate.limit import Limit

MOST_LEARNED: Final = 8
"""The most limits that one key learns."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}", re.ASCII)


class Learned:
    """The limits of one key, and the pace that keeps to them.

    A limit that the server tells is adopted if it is tighter than the published one, or if none was published. The pace
    is slower while less remains than this pace alone would leave.
    """

    def __init__(self, published: tuple[Limit, ...], headroom: float, tokens: bool) -> None:
        self._headroom = headroom
        self._tokens = tokens
        self._published = named(published)
        self._limits = dict(self._published)
        self._left: dict[str, QuotaLeft] = {}
        self._guesses: dict[str, GuessedWindow] = {}
        self._names: frozenset[str | None] | None = None
        """The names in the first response that told any. One key may see other resources of its server, with limits of
        their own that say nothing about most of its requests."""
        self._paces = self._paced()
        self.windows = windows_of(self._limits.values())
        """The windows of the limits that count tokens."""
        self.paces = self._paces or (UNLIMITED,)
        """The limits by which calls are paced now."""
        self.spread_until_us = 0
        """Until this instant the paces are slower than the limits; 0 if they are not."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The server's limits as they are known."""
        return tuple(self._limits.values())

    @property
    def rate(self) -> float | None:
        """The requests a second that the limits allow; None if none is known."""
        paces = [pace for pace in self._paces if not counts_tokens(pace.name)]
        return min((pace.amount * SECOND / pace.period_us for pace in paces), default=None)

    @property
    def weighs(self) -> bool:
        """True if a limit counts tokens: then a rate of requests says little."""
        return any(map(counts_tokens, self._limits))

    @property
    def differs(self) -> bool:
        """True if the server has told other limits than were published."""
        return self._limits != self._published

    def hear(self, all_told: Iterable[ServerLimit], now_us: int) -> float:
        """Learn from a response. Return for how many seconds nothing is left, or 0."""
        all_told = tuple(all_told)
        if self._names is None:
            self._names = frozenset(told.name for told in all_told) or None
        empty = 0.0
        for told in all_told:
            if self._names is None or told.name not in self._names:
                continue
            name = self._name_of(told)
            if name is None:
                continue
            self._adopt(name, told, now_us)
            left = self._left.setdefault(name, QuotaLeft(self._headroom))
            empty = max(empty, left.hear(told, self._limits.get(name), now_us))
            if self.spread_until_us or left.slow_until_us(now_us):
                self._repace(now_us)
        return empty

    def at(self, now_us: int) -> tuple[Limit, ...]:
        """Return the paces at this instant."""
        if self.spread_until_us:
            self._repace(now_us)
        return self.paces

    def _name_of(self, told: ServerLimit) -> str | None:
        """Return the name of the limit that is meant, or None if calls do not know their cost in its units."""
        name = (told.name or REQUESTS).replace("-", "_")
        if name in self._published:
            return name
        if counts_tokens(name):
            return name if self._tokens else None
        for own, limit in self._published.items():
            if not counts_tokens(own) and (told.window is None or _alike(told.window, limit.period_us)):
                return own
        return name if _NAME.fullmatch(name) else REQUESTS

    def _adopt(self, name: str, told: ServerLimit, now_us: int) -> None:
        if told.limit is None:
            return
        own = self._published.get(name)
        if name not in self._limits and len(self._limits) >= MOST_LEARNED:
            return
        window_us = self._window_of(name, told, own, now_us)
        if window_us is None:
            return
        if told.limit > window_us:  # more than a unit in a microsecond limits nobody, and parts of it are too fine
            return
        try:
            limit = Limit(told.limit, window_us / SECOND, name=name)
            paced(limit, self._headroom)
            windows_of((limit,))
        except InvalidLimit:  # too large to be true, or to be kept by a pace or a window
            return
        if own is not None and limit.amount * own.period_us >= own.amount * limit.period_us:
            limit = own
        if limit != self._limits.get(name):
            self._limits[name] = limit
            self._paces = self._paced()
            self.windows = windows_of(self._limits.values())
            self._repace(0)

    def _window_of(self, name: str, told: ServerLimit, own: Limit | None, now_us: int) -> int | None:
        """Return the window of a told limit in microseconds: told, published, or guessed by the resets."""
        if told.window is not None:
            return max(1, round(told.window * 1_000)) * MILLISECOND
        if own is not None:
            return own.period_us
        guess = self._guesses.setdefault(name, GuessedWindow())
        return guess.hear(round((told.reset or 0) * SECOND), now_us)

    def _paced(self) -> tuple[Limit, ...]:
        return tuple(paced(limit, self._headroom) for limit in self._limits.values())

    def _repace(self, now_us: int) -> None:
        """Choose the paces again: those of the limits, slowed where less remains."""
        found = [(pace, self._left.get(pace.name)) for pace in self._paces]
        self.spread_until_us = max((left.slow_until_us(now_us) for _, left in found if left is not None), default=0)
        self.paces = tuple([pace if left is None else left.pace(pace, now_us) for pace, left in found]) or (UNLIMITED,)


def _alike(window: float, period_us: int) -> bool:
    return abs(window * SECOND - period_us) <= period_us / 100
