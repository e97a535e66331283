"""The pace of a caller under a server's limit: a little slower than allowed, and with a small burst.

A server counts by an algorithm of its own, and by its own clock. A bucket of rate r and burst b lets at most b + r P
units pass in any window of P seconds. With a rate of 98 % of the limit and a burst of 2 %, this is never more than the
limit, whichever way the server counts. Requests have half of that burst: those that leave evenly do not arrive evenly,
and the other 1 % of the window is for what the way adds. Tokens have more: `token_window` keeps their windows.
"""

from __future__ import annotations

import math
from typing import Final

from headgate.clock import MILLISECOND, SECOND
from headgate.errors import InvalidCall
from headgate.limit import Limit

REQUESTS: Final = "requests"
"""The name of a limit that its user has not named."""
UNLIMITED: Final = Limit(1_000_000, "second", name="unlimited")
"""The limit of a key whose server has told none yet; its states carry the pauses of the key."""


BURST_OF_TOKENS: Final = 0.1
"""The part of a limit by which tokens may be ahead of their pace, as they are after a wait for their window."""
FOUND_PERIOD: Final = 1000
"""Seconds. A found rate is a fraction, and the amount of a limit is a whole number."""
ANY_RATE: Final = Limit(1_000_000, FOUND_PERIOD, name="found")


def counts_tokens(name: str) -> bool:
    """Return whether a limit of this name counts tokens, not requests."""
    return name.endswith("tokens")


def named(limits: tuple[Limit, ...]) -> dict[str, Limit]:
    """Return limits by their names; those without a name count requests."""
    by_name: dict[str, Limit] = {}
    for limit in limits:
        name = limit.name or REQUESTS
        number = 1 + sum(each.partition(".")[0] == name for each in by_name)
        if not limit.name and number > 1:
            name = f"{name}.{number}"
        by_name[name] = limit if limit.name == name else limit.replace(name=name)
    return by_name


def paced(limit: Limit, headroom: float) -> Limit:
    """Return the pace that keeps to a server's limit."""
    if limit.in_flight:
        raise InvalidCall(f"a budget paces rates; {limit} counts what is in flight: hold a Limiter's permit for it")
    name = limit.name or REQUESTS
    period_us = math.ceil(limit.period_us / (1 - headroom) / MILLISECOND) * MILLISECOND
    burst = max(1, int(limit.amount * (BURST_OF_TOKENS if counts_tokens(name) else headroom / 2)))
    return Limit(limit.amount, period_us / SECOND, burst=min(burst, limit.burst), name=name)


def large_enough(pace: Limit, cost: int) -> Limit:
    """Return a pace whose burst has room for this cost: a large call waits until nothing else is owed."""
    if cost <= pace.burst:
        return pace
    digits = max(0, len(str(cost)) - 2)  # few different bursts, since each is a plan of its own
    return pace.replace(burst=max(pace.burst, min(pace.amount, -(-cost // 10**digits) * 10**digits)))


def found(rate: float, headroom: float) -> Limit:
    """Return the pace of a rate that was found from refusals."""
    return ANY_RATE.replace(amount=max(1, round(rate * FOUND_PERIOD)), burst=max(1, int(rate * headroom)))


def slowed(pace: Limit, remaining: int, reset_us: int) -> Limit:
    """Return the pace at which the remaining units last until they are renewed, if it is slower than this pace."""
    amount = max(1, int(remaining * pace.period_us / reset_us))
    if amount >= pace.amount:
        return pace
    digits = max(0, len(str(amount)) - 2)  # two digits are exact enough, and make few different paces
    amount = max(1, amount // 10**digits * 10**digits)
    return pace.replace(amount=amount, burst=min(pace.burst, max(1, amount * pace.burst // pace.amount)))


def slower(pace: Limit, share: float) -> Limit:
    """Return a part of a pace of requests, in whole percents: few different paces, since each is a plan of its own."""
    amount = max(1, round(pace.amount * round(share, 2)))
    if counts_tokens(pace.name) or amount >= pace.amount:
        return pace
    return pace.replace(amount=amount, burst=min(pace.burst, amount))


def checked_headroom(headroom: float) -> float:
    """Return the part of a limit that is left free, or raise `InvalidCall`."""
    if isinstance(headroom, bool) or not isinstance(headroom, int | float) or not 0 <= headroom <= 0.5:
        raise InvalidCall(f"headroom is the part of each limit that is left free, from 0 to 0.5; got {headroom!r}")
    return headroom
