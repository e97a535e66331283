"""Remembered refusals, so that an attack does not load the server.

A refusal holds without asking the server, for the same limits and keys and for costs that are not smaller (under a
block, for the same cost). It holds for its own retry from the local instant at which the command was sent (before the
server's instant), and at most for `remember_refusals`. The answer is the server's verdict, with its waits reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.algorithms import NEVER, Verdict
from headgate.engine import UP_TO, Decision
from headgate.limit import Limit
from headgate.stores.redis.compiled import Keys

MOST: Final = 10_000
"""The most refusals, and the most keys with units given back, that are remembered."""


class CachedRefusal(NamedTuple):
    """One refusal."""

    sent_us: int
    ends_us: int
    costs: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


class RefusalCache:
    """The refusals of one namespace of a store."""

    def __init__(self, longest_us: int, now_us: Callable[[], int]) -> None:
        self._longest_us = longest_us
        self._now_us = now_us
        self._kept: dict[tuple[tuple[Limit, ...], Keys], CachedRefusal] = {}
        self._given: dict[str, int] = {}
        self._all_given_us = 0

    def sent(self) -> int:
        """Return the instant to pass to `keep`."""
        return self._now_us() if self._longest_us else 0

    def find(self, limits: tuple[Limit, ...], keys: Keys, costs: tuple[int, ...], mode: int) -> Decision | None:
        """Return the remembered refusal that holds for these costs, or None."""
        refusal = self._kept.get((limits, keys)) if self._kept else None
        if refusal is None:
            return None
        now = self._now_us()
        if not refusal.sent_us <= now < refusal.ends_us or refusal.sent_us <= self._last_given(keys):
            self._kept.pop((limits, keys), None)
            return None
        asked = tuple(min(cost, 1) for cost in costs) if mode == UP_TO else costs  # a grant is at least 1
        if asked != refusal.costs and not all(map(_covers, refusal.costs, asked, limits)):
            return None
        answers: list[int] = []
        for allowed, remaining, retry, reset, mark, _ in refusal.verdicts:
            age = now - refusal.sent_us
            answers += (
                allowed,
                remaining,
                retry if retry < 0 else max(0, retry - age),
                reset if reset < 0 else max(0, reset - age),
                *mark,
            )
        return Decision(limits, keys, asked, answers)

    def keep(
        self, limits: tuple[Limit, ...], keys: Keys, costs: tuple[int, ...], sent_us: int, decision: Decision
    ) -> None:
        """Remember a refusal, unless its end is unknown."""
        if self._longest_us and not decision.unknown:
            wait = self._longest_us if decision.retry_us == NEVER else min(decision.retry_us, self._longest_us)
            _make_room(self._kept)
            self._kept[limits, keys] = CachedRefusal(sent_us, sent_us + wait, costs, decision.verdicts)

    def drop(self, limits: tuple[Limit, ...], keys: Keys) -> None:
        """Forget the refusal of these keys: the server has admitted a call since."""
        self._kept.pop((limits, keys), None)

    def gave(self, keys: tuple[str, ...]) -> None:
        """Forget earlier refusals of these keys, which got units back and may be admitted now."""
        if self._longest_us:
            now = self._now_us()
            for key in keys:
                if len(self._given) >= MOST:
                    self.gave_all()
                self._given[key] = now

    def gave_all(self) -> None:
        """Like `gave`, for every key."""
        self._all_given_us = self._now_us()
        self._given.clear()

    def _last_given(self, keys: Keys) -> int:
        given = self._given
        if not given:
            return self._all_given_us
        each = (keys,) if isinstance(keys, str) else keys
        return max(self._all_given_us, *(given.get(key, 0) for key in each))


def _covers(refused: int, cost: int, limit: Limit) -> bool:
    """Whether a refused cost means that this cost is refused too. Not under a block, which a larger cost prolongs."""
    return cost == refused or (refused < cost and (limit.guards or (cost <= limit.burst and not limit.block_us)))


def _make_room(kept: dict[tuple[tuple[Limit, ...], Keys], CachedRefusal]) -> None:
    """Forget the oldest quarter if there are too many: each then takes one more question to the server."""
    if len(kept) >= MOST:
        for oldest in list(kept)[: MOST // 4]:
            kept.pop(oldest, None)
