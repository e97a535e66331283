"""`Call`: one limit, one key and a cost; and the checks of keys and costs."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, Final

from headgate.algorithms import EXACT
from headgate.errors import InvalidCall
from headgate.limit import Limit
from headgate.wording import shown

LONGEST_KEY: Final = 4096
"""Bytes of UTF-8."""

Cost = int | Mapping[str, int]
"""One number for every limit, or one number for each limit's name: `{"rpm": 1, "tpm": 500}`."""


class Call:
    """One question: may `key` spend `cost` of `limit`? Immutable, hashable."""

    __slots__ = __match_args__ = ("limit", "key", "cost")

    limit: Limit
    key: str
    cost: int

    def __init__(self, limit: Limit | str, key: str, cost: int = 1) -> None:
        object.__setattr__(self, "limit", limit if isinstance(limit, Limit) else Limit.parse(limit))
        object.__setattr__(self, "key", checked_key(key))
        object.__setattr__(self, "cost", checked_cost(cost))

    def _fields(self) -> tuple[Limit, str, int]:
        return self.limit, self.key, self.cost

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if type(other) is Call else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Call cannot be changed; make another one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Call cannot be changed; {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, self._fields()

    def __repr__(self) -> str:
        return f"Call(limit={self.limit!r}, key={self.key!r}, cost={self.cost!r})"


def checked_key(key: str) -> str:
    """Return the key, or raise `InvalidCall`. A key may have any Unicode character, lone surrogates included."""
    if not isinstance(key, str):
        raise InvalidCall(f"a key must be a str; got {shown(key)} of type {type(key).__name__}")
    if not key:
        raise InvalidCall("a key must not be empty: all callers without an identity would share one budget")
    if len(key) > LONGEST_KEY // 4 and len(key.encode("utf-8", "surrogatepass")) > LONGEST_KEY:
        raise InvalidCall(f"a key may have at most {LONGEST_KEY} bytes of UTF-8; hash a longer key; got {shown(key)}")
    return key


def checked_cost(cost: int) -> int:
    """Return the cost as an int, or raise `InvalidCall`."""
    try:
        whole = cost if type(cost) is int else index(cost)
    except TypeError:
        whole = -1
    if isinstance(cost, bool) or not 0 <= whole <= EXACT:
        raise InvalidCall(f"a cost must be a whole number from 0 to 2**53; got {shown(cost)}")
    return whole


def checked_costs(limits: tuple[Limit, ...], cost: Cost) -> tuple[int, ...]:
    """Return one cost for each limit, from one number or from numbers by name."""
    if type(cost) is int or not isinstance(cost, Mapping):  # the first test is fast and decides most calls
        return (checked_cost(cost),) * len(limits)
    names = [limit.name for limit in limits if not limit.guards]
    if set(cost) != set(names) or "" in cost:
        known = ", ".join(name or "(unnamed)" for name in names)
        raise InvalidCall(f"costs by name must name every limit; the limits are {known}; got {shown(dict(cost))}")
    costs = tuple(checked_cost(cost[name]) for name in names)
    return costs if len(names) == len(limits) else (*costs, max(costs))  # the last is the pause
