"""The books: charged is used, given back or still held, to the microsecond, whatever happened in between."""

from __future__ import annotations

import random

import pytest

from headgate import Limiter
from headgate.limiter.reservation import Reservation
from headgate.testing import ManualClock
from tests.support.homes import LATER

TEXTS = ["50/second burst 20", "50/second burst 2000", "20/minute by fixed-window", "20/minute by sliding-log"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(40))
def test_at_one_instant_only_what_was_used_stays(text, seed):
    """Whatever was reserved, cancelled, settled, refunded or refused: a limiter that saw only what was used agrees.

    Where a bucket has promised something for later, what is given up before that promise is lost, and nothing more.
    """
    chance, clock = random.Random(seed), ManualClock(LATER)
    limiter, only = Limiter(text, clock=clock), Limiter(text, clock=clock, namespace="only")
    held, used = [], 0
    for _ in range(60):
        verb, cost = chance.choice(("hit", "acquire", "reserve", "reserve", "cancel", "settle", "refund")), 0
        if verb == "hit":
            used += limiter.hit("k", chance.randint(0, 8)).granted
        elif verb == "acquire":
            used += limiter.acquire("k", chance.randint(0, 21), timeout=0).granted
        elif verb == "refund":
            limiter.refund(limiter.hit("k", chance.randint(0, 8)))
        elif verb == "reserve":
            held.append(limiter.reserve("k", chance.randint(0, 20)))
        elif held:
            reservation = held.pop(chance.randrange(len(held)))
            cost = reservation.decision.granted
            if verb == "settle" and reservation:
                room = only.limits[0].burst - used - sum(each.decision.granted for each in held)
                actual = chance.randint(0, 30)
                extra = actual - cost
                if extra > 0 and "by" in text:
                    actual = cost + max(0, min(extra, room - cost))
                    reservation.settle(cost + extra)
                else:
                    reservation.settle(actual)
                used += actual
            else:
                reservation.cancel()
        if len(held) > 3:
            held.pop(0).cancel()
    for reservation in held:
        reservation.cancel()
    while used:
        chunk = min(used, only.limits[0].burst)
        assert only.reserve("k", chunk)
        used -= chunk
    if text == "50/second burst 20":
        assert limiter.peek("k", 0).reset_us >= only.peek("k", 0).reset_us
    else:
        assert limiter.peek("k", 0).verdicts == only.peek("k", 0).verdicts


@pytest.mark.parametrize("seed", range(40))
def test_as_time_goes_by_only_what_is_used_or_held_drains(seed):
    """A bucket that is never idle: after every step its end is where the units charged and not given back put it.

    Only the last promise is given up here, and whole: of those in the middle, nothing is given back.
    """
    chance, clock = random.Random(seed), ManualClock(LATER)
    limiter = Limiter("100/second burst 20", clock=clock)
    start, unit = clock.us, 10_000
    last: Reservation | None = None
    due = charged = given_back = 0
    for _ in range(200):
        busy = (charged - given_back) * unit - (clock.us - start)
        roll = chance.random()
        if roll < 0.4 or busy < 5 * unit:
            cost = chance.randint(1, 20)
            last = limiter.reserve("k", cost)
            assert round(last.delay * 1e6) == max(0, busy + (cost - 20) * unit)
            charged += cost
            due = clock.us + round(last.delay * 1e6)
        elif roll < 0.5:
            granted = limiter.hit("k", chance.randint(1, 3)).granted
            charged, last = charged + granted, None if granted else last
        elif roll < 0.6:
            clock.us += chance.randrange(busy)
        elif last is not None and due > clock.us and last.decision.granted * unit < busy:
            cost = last.decision.granted
            actual = chance.choice((0, cost, cost + chance.randint(1, 50)))
            if actual:
                last.settle(actual)
            else:
                last.cancel()
            last = None
            charged, given_back = charged + max(0, actual - cost), given_back + max(0, cost - actual)
        assert limiter.peek("k", 0).reset_us == (charged - given_back) * unit - (clock.us - start)
