"""Bans: a key of a rule is refused until an instant, which the store keeps as a pause.

A rule that was never banned must not pay for bans. So a second pause in the store says until when a rule has bans, and
a third one until when any rule of the namespace has. A process looks at the third at most every half second, and at the
others only while the one before is there: a ban made elsewhere holds within a second. A store in memory is never asked
for it, as all its bans are made in this process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from headgate.caches import ClearedWhenFull
from headgate.clock import SECOND
from headgate.engine import NEVER_DUE, PEEK, TAKE, Decision
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import LONGEST_BAN, Limit, Period, ban_limit, microseconds
from headgate.steps import Steps, run
from headgate.stores import AsyncStore, MemoryStore, Store
from headgate.wording import log_of

if TYPE_CHECKING:
    from headgate.policy.rule import Rule

FRESH: Final = SECOND // 2
"""The time for which an answer about bans is used again."""
EVERY_RULE: Final = "*"
"""The key of the instant until which any rule has bans; no rule can have this name."""
MOST_KEYS: Final = 10_000
"""The most keys whose bans are remembered between two looks."""
UNKNOWN: Final = (-FRESH, 0)

SeenBan = tuple[int, int]
"""The instant at which the store was asked, and the instant at which the ban ends."""
log = log_of("headgate.policy")


def blocks_of(rule: Rule) -> str:
    """Return the name under which the blocks of a rule with `blocks: all` are kept; no rule can have it."""
    return f"{rule.name}/all"


class HasBans(Exception):
    """A rule has bans: no error, but the end of a fast path, after which the steps look at each key."""


def checked_time(duration: Period) -> int:
    """Return the time of a ban in microseconds, or raise `InvalidCall`."""
    try:
        us = microseconds(duration, "the time of a ban")
    except InvalidLimit as reason:
        raise InvalidCall(str(reason)) from None
    if us > LONGEST_BAN:
        raise InvalidCall(f"a ban lasts at most 366 days; got {duration!r}")
    return us


class Known:
    """The bans in one namespace of a store, as this process knows them; common to every policy that counts there."""

    def __init__(self) -> None:
        self.rules: dict[str, SeenBan] = {}
        self.keys: ClearedWhenFull[tuple[str, str], SeenBan] = ClearedWhenFull(MOST_KEYS)
        self.version = 0
        self._runs: dict[int, ref[Any]] = {}

    def follow(self, counted_run: Any) -> None:  # noqa: ANN401 - of either engine
        """Tell this run of bans that are made in this process."""
        name, runs = id(counted_run), self._runs
        if name not in runs:
            runs[name] = ref(counted_run, lambda _: runs.pop(name, None))

    def learn(self, rule: str, key: str, now: int, until: int) -> None:
        """Take note of a ban that this process has made or, with `until` 0, ended."""
        self.keys.pop((rule, key), None)
        for name in (EVERY_RULE, rule) if until else ():
            _, before = self.rules.get(name, UNKNOWN)
            self.rules[name] = now, max(before, until)
        self.version += 1  # before the runs: `Bans.due` looks at it after it has set the instant of a run
        for each in list(self._runs.values()):
            counted_run = each()
            if counted_run is not None:
                counted_run.due = 0


_known: WeakKeyDictionary[Store, dict[str, Known]] = WeakKeyDictionary()


def _known_in(store: Store, namespace: str) -> Known:
    try:
        return _known.setdefault(store, {}).setdefault(namespace, Known())
    except TypeError:  # a store of an app's own with slots: each policy looks for itself
        return Known()


class Bans:
    """The bans of the rules of one namespace, on one store. Steps are awaited if the edge and the store await."""

    def __init__(self, store: Store, namespace: str, awaited: bool) -> None:
        self._store = store
        self._namespace = namespace
        self._awaited = awaited and isinstance(store, AsyncStore)
        self._near = isinstance(store, MemoryStore)
        self._known = _known_in(store, namespace)
        self._bounds: dict[str, Any] = {}

    def now_us(self) -> int:
        """Return the time of the store's clock in this process."""
        return self._store.clock.now_us()

    def may_have(self) -> bool:
        """Whether some rule may have bans, as far as that is known without the store."""
        asked, until = self._known.rules.get(EVERY_RULE, UNKNOWN)
        if self._near and not until:
            return False
        now = self.now_us()
        return until > now or (not self._near and not asked <= now < asked + FRESH)

    def has(self, rule: str) -> Steps[bool]:
        """Return whether a rule may have bans."""
        return (yield from self._has_bans(rule))

    def left(self, rule: str, key: str) -> Steps[int]:
        """Return for how many microseconds a key is banned still; 0 if it is not."""
        if not (yield from self._has_bans(rule)):
            return 0
        return (yield from self._look(self._known.keys, (rule, key), ban_limit(rule), key))

    def due(self, rules: Iterable[str], counted_run: Any) -> None:  # noqa: ANN401 - of either engine
        """Set the instant of the next look at the bans of these rules; raise `HasBans` if one of them has any."""
        version = self._known.version
        self._known.follow(counted_run)
        if self.may_have():
            for rule in rules:
                if run(self._has_bans(rule)):
                    raise HasBans(rule)
        counted_run.due = NEVER_DUE if self._near else self._asked(rules) + FRESH
        if self._known.version != version:
            counted_run.due = 0

    def _asked(self, rules: Iterable[str]) -> int:
        """Return the instant of the oldest answer by which these rules have no bans."""
        known = self._known.rules
        asked, until = known[EVERY_RULE]
        return min(asked, *(known[rule][0] for rule in rules)) if until > asked else asked

    def ban(self, rule: str, key: str, time_us: int) -> Steps[None]:
        """Ban a key for this time. Of two bans the one that ends later counts."""
        now = self.now_us()
        for limit, name in ((ban_limit(""), EVERY_RULE), (ban_limit(""), rule), (ban_limit(rule), key)):
            yield self._bound(limit).run(name, (time_us,), TAKE)  # the key last: a ban without the others is not seen
        self._known.learn(rule, key, now, now + time_us)

    def unban(self, rule: str, key: str) -> Steps[None]:
        """End the ban of a key. The rule counts as one with bans until the last of them would have ended."""
        if self._is_there(ban_limit(rule)):
            yield self._bound(ban_limit(rule)).clear(key)
        self._known.learn(rule, key, self.now_us(), 0)

    def look(self, rule: str, key: str) -> Steps[tuple[int, int]]:
        """Ask the store itself: return the time that is left of a ban, and the instant at which it ends."""
        if not self._is_there(ban_limit(rule)):
            return 0, 0
        decision: Decision = yield self._bound(ban_limit(rule)).run(key, (0,), PEEK)
        return decision.reset_us, decision.verdicts[0].mark[0]

    def _has_bans(self, rule: str) -> Steps[bool]:
        rules = self._known.rules
        if self._near:
            return rules.get(rule, UNKNOWN)[1] > self.now_us()
        if not (yield from self._look(rules, EVERY_RULE, ban_limit(""), EVERY_RULE)):
            return False
        return bool((yield from self._look(rules, rule, ban_limit(""), rule)))

    def _look(self, kept: dict[Any, SeenBan], name: Any, limit: Limit, key: str) -> Steps[int]:  # noqa: ANN401
        """Return the time that is left of a pause, by an answer that is not older than `FRESH`."""
        now = self.now_us()
        asked, until = kept.get(name, UNKNOWN)
        if not asked <= now < asked + FRESH:
            try:
                until = now + (yield from self._rest(limit, key))
            except Exception as error:  # the answer of the last look counts, and `on_error` answers for the limits
                log.info("the bans could not be looked at: %s", error)
            if kept is self._known.keys:
                self._known.keys.keep(name, (now, until))
            else:
                kept[name] = now, until
        return max(0, until - now)

    def _rest(self, limit: Limit, key: str) -> Steps[int]:
        if not self._is_there(limit):
            return 0
        decision: Decision = yield self._bound(limit).run(key, (0,), PEEK)
        return decision.reset_us

    def _is_there(self, limit: Limit) -> bool:
        """Whether the store has a place for bans: a look must not make the table of a shared store."""
        has_table = getattr(self._store, "has_table", None)
        return limit.identity in self._bounds or has_table is None or has_table(self._namespace, limit)

    def _bound(self, limit: Limit) -> Any:  # noqa: ANN401 - of either kind
        bound = self._bounds.get(limit.identity)
        if bound is None:
            store: Any = self._store
            bind = store.bind_async if self._awaited else store.bind
            bound = self._bounds[limit.identity] = bind(self._namespace, (limit,))
        return bound
