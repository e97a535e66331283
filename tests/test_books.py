"""The books: charged is used, given back or still held, to the microsecond, whatever happened in between."""

from __future__ import annotations

import random

import pytest

from headgate import Limiter
from headgate.limiter.reservation import Reservation
from headgate.testing import ManualClock
from tests.homes import LATER


@pytest.mark.parametrize("text", ["50/second burst 20", "20/minute by fixed-window", "20/minute by sliding-log"])
@pytest.mark.parametrize("seed", range(40))
def test_at_one_instant_only_what_was_used_stays(text, seed):
    """Whatever was reserved, cancelled, settled, refunded or refused: a limiter that saw only what was used agrees."""
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
    assert limiter.peek("k", 0).verdicts == only.peek("k", 0).verdicts


@pytest.mark.parametrize("seed", range(40))
def test_as_time_goes_by_only_what_is_used_or_held_drains(seed):
    """A bucket that is never idle: after every step its end is where the units charged and not given back put it."""
    chance, clock = random.Random(seed), ManualClock(LATER)
    limiter = Limiter("100/second burst 20", clock=clock)
    start, unit = clock.us, 10_000
    held: list[tuple[Reservation, int]] = []
    charged = given_back = 0
    for _ in range(200):
        busy = (charged - given_back) * unit - (clock.us - start)
        roll = chance.random()
        if roll < 0.5 or busy < 5 * unit:
            cost = chance.randint(1, 20)
            reservation = limiter.reserve("k", cost)
            assert round(reservation.delay * 1e6) == max(0, busy + (cost - 20) * unit)
            charged += cost
            held.append((reservation, clock.us + round(reservation.delay * 1e6)))
        elif roll < 0.6:
            charged += limiter.hit("k", chance.randint(1, 3)).granted
        elif roll < 0.7:
            clock.us += chance.randrange(busy)
        else:
            held = [(each, due) for each, due in held if due > clock.us]  # the others were used
            chance.shuffle(held)
            if held and held[-1][0].decision.granted * unit < busy:
                reservation, cost = held[-1][0], held[-1][0].decision.granted
                actual = chance.choice((0, chance.randrange(cost), cost, cost + chance.randint(1, 50)))
                if actual:
                    reservation.settle(actual)
                else:
                    reservation.cancel()
                held.pop()
                charged, given_back = charged + max(0, actual - cost), given_back + max(0, cost - actual)
        assert limiter.peek("k", 0).reset_us == (charged - given_back) * unit - (clock.us - start)
