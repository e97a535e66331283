"""KeyWatch: the keys that are refused most, and those that ask most, in fixed memory; and a log of refusals."""

from __future__ import annotations

import random
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from headgate.engine import Decision
from headgate.forks import after_fork
from headgate.observe.refusal_log import RefusalLog
from headgate.observe.sketch import Listed, Sketch
from headgate.policy.edges import Rule, without_addresses

ONE_IN: Final = 64
"""Of this number of decisions, one is looked at to find the busiest keys."""
LONGEST: Final = 128
"""The longest key that is kept as it is, in characters: clients choose keys, and memory is fixed."""
_KEPT: Final = 96
_chance = random.Random()  # noqa: S311 - not the program's own generator, which it may have seeded


class KeyWatch:
    """Sees refusals and some of the decisions of an edge."""

    def __init__(self, hash_addresses: bool = False) -> None:
        self._refused = Sketch()
        self._asked = Sketch()
        self._hash_addresses = hash_addresses
        self._log = RefusalLog()
        after_fork(self._forget)

    def refused(self, rule: Rule, key: str, decision: Decision) -> None:
        """See a refusal."""
        shown = self.shown(rule, key)
        self._refused.add(rule.name, shown)
        self._log.write(rule.name, shown, decision)

    def until_sample(self) -> int:
        """Return the number of decisions until the next one to see: random, so that no rhythm hides a key."""
        return _chance.randrange(1, 2 * ONE_IN)

    def sampled(self, asked: Iterable[tuple[Rule, str]]) -> None:
        """See the keys of one decision."""
        for rule, key in asked:
            self._asked.add(rule.name, self.shown(rule, key))

    def refused_keys(self) -> tuple[list[Listed], int]:
        """Return the keys refused most, and the most that another key can have been refused."""
        return self._refused.listed(), self._refused.floor

    def busiest_keys(self) -> tuple[list[Listed], int]:
        """Return the keys that ask most, estimated by a sample, and the most that another key can have asked."""
        each = [
            Listed(one.rule, one.key, one.count * ONE_IN, one.error * ONE_IN, one.since) for one in self._asked.listed()
        ]
        return each, self._asked.floor * ONE_IN

    def shown(self, rule: Rule, key: str) -> str:
        """Return a key as it is listed: short, and without addresses if these are hashed."""
        if self._hash_addresses:
            key = without_addresses(rule, key)
        if len(key) <= LONGEST:
            return key
        return key[:_KEPT] + "..." + blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _forget(self) -> None:
        """Start anew in a forked child."""
        self._refused.forget()
        self._asked.forget()
        self._log.forget()
