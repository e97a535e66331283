"""The descriptors of a domain, and the rules by which the entries of a request find their limit.

Level by level, an entry takes the first of these that exists: the descriptor with its key and value; the first wildcard
in the order of the file; the descriptor with its key alone. There is no going back to another choice at an earlier
level. Only the descriptor of the last entry gives a limit, so a request and a file must be equally deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from headgate.call import LONGEST_KEY
from headgate.limit import Limit

DAY: Final = 86_400
UNITS: Final = {
    "second": (1, 1), "minute": (2, 60), "hour": (3, 3600), "day": (4, DAY), "month": (5, 30 * DAY),
    "year": (6, 365 * DAY), "week": (7, 7 * DAY),
}  # fmt: skip
"""The number of each unit in the messages of Envoy, and its seconds."""
SECONDS_OF: Final = dict(UNITS.values())
Entries = Iterable[tuple[str, str]]


class Rule(NamedTuple):
    """The `rate_limit` of a descriptor, or of a request."""

    requests_per_unit: int
    unit: int
    """The number of the unit in a message."""
    limit: Limit | None
    """The limit that counts; None for `unlimited`, and for 0 requests, which refuses everything."""
    unlimited: bool = False
    shadow: bool = False
    quota: bool = False
    name: str = ""
    replaces: tuple[str, ...] = ()


class Descriptor:
    """A descriptor of a file, or a whole domain: its rule, and the descriptors below it."""

    __slots__ = ("exact", "pattern", "rule", "shares", "wildcards")

    def __init__(self, rule: Rule | None = None, pattern: str = "", shares: bool = False) -> None:
        self.rule = rule
        self.pattern = pattern
        """The value in the file; empty where the key is alone."""
        self.shares = shares
        """Whether all values of the wildcard share one count."""
        self.exact: dict[tuple[str, str], Descriptor] = {}
        """By key and value; a key alone has the value ""."""
        self.wildcards: dict[str, list[tuple[re.Pattern[str], Descriptor]]] = {}
        """By key, in the order of the file."""

    def add(self, key: str, below: Descriptor) -> bool:
        """Add a descriptor; False if there is one with its key and value."""
        if (key, below.pattern) in self.exact:
            return False
        self.exact[key, below.pattern] = below
        if "*" in below.pattern:
            self.wildcards.setdefault(key, []).append((wildcard(below.pattern), below))
        return True

    def next(self, key: str, value: str) -> Descriptor | None:
        """Return the descriptor for an entry, by the three rules in their order."""
        found = self.exact.get((key, value)) if value else None
        if found is None:
            for pattern, descriptor in self.wildcards.get(key, ()):
                if pattern.fullmatch(value):
                    return descriptor
            found = self.exact.get((key, ""))
        return found


def wildcard(pattern: str) -> re.Pattern[str]:
    """Return the expression of a value in which each `*` stands for any text, also for none.

    Parts between two `*` are found from the left and kept: a hostile value cannot make the search go back.
    """
    first, *middle, last = map(re.escape, pattern.split("*"))
    return re.compile("".join([first, *(f"(?>.*?{part})" for part in middle), ".*", last]), re.DOTALL)


def find(domain: Descriptor, entries: Entries) -> tuple[Rule | None, list[tuple[str, str]]]:
    """Return the rule for the entries of a request, and the entries by which it is counted."""
    at: Descriptor | None = domain
    counted = []
    for key, value in entries:
        if at is None:
            return None, []
        at = at.next(key, value)
        counted.append((key, at.pattern if at is not None and at.shares else value))
    return (at.rule if at is not None else None), counted


def key_of(domain: str, entries: Entries) -> str:
    """Return the key of a count. Lengths keep its parts apart: `a_b`, `c` is not `a`, `b_c`."""
    key = f"{len(domain)}:{domain}" + "".join([f"{len(key)}:{key}{len(value)}:{value}" for key, value in entries])
    if len(key) * 4 > LONGEST_KEY and len(key.encode("utf-8", "surrogatepass")) > LONGEST_KEY:
        return f"blake2b:{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=32).hexdigest()}"
    return key
