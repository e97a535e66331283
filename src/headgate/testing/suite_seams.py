"""The tests of windows with seams of their own, and of limits for nobody, which are a part of `StoreSuite`."""

from __future__ import annotations

from datetime import datetime

from headgate.limiter import Limiter
from headgate.stores import Store
from headgate.testing.clock import ManualClock
from headgate.testing.suite_limits import EVERY_ALGORITHM

WINDOWS = (
    ("month", "2028-02-10T12:00+00:00", "2028-03-01T00:00+00:00"),
    ("month", "2027-02-10T12:00+00:00", "2027-03-01T00:00+00:00"),
    ("year", "2028-02-29T12:00+00:00", "2029-01-01T00:00+00:00"),
    ("week from sunday", "2026-11-21T23:59+00:00", "2026-11-22T00:00+00:00"),
    ("day in Europe/Berlin", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
    ("day in Europe/Berlin", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00"),
    ("month in Europe/Berlin", "2026-03-01T00:00+01:00", "2026-04-01T00:00+02:00"),
    ("day in America/Havana", "2026-03-07T12:00-05:00", "2026-03-08T01:00-04:00"),
    ("day in America/St_Johns", "2010-11-06T12:00-02:30", "2010-11-07T00:00-02:30"),
    ("day in Pacific/Apia", "2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00"),
    ("week from saturday in Asia/Tehran", "2026-11-18T12:00+03:30", "2026-11-21T00:00+03:30"),
)
"""A window, an instant in it, and its end: leap years, clocks that change, midnights that are skipped or come twice."""

SEAMS = {"a": 59.140625, "b": 12.734375, "c": 37.109375, "d": 55.625, "e": 13.203125}
"""Keys of the namespace `default`, and the seconds until their windows of a minute end, at one instant."""


def _us(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp()) * 1_000_000


class SeamSuite:
    """The tests of a store's windows of the calendar and of scattered windows."""

    def store(self, clock: ManualClock) -> Store:
        """Return an empty store that uses this clock."""
        raise TypeError("a subclass of StoreSuite must define store(clock)")

    def test_a_window_of_the_calendar_ends_at_its_instant(self) -> None:
        """A used up quota is refused one microsecond before the window ends, and whole at that instant."""
        for words, inside, end in WINDOWS:
            clock = ManualClock()
            clock.us = _us(inside)
            limiter = Limiter(f"3/{words}", store=self.store(clock), on_error="raise")
            assert limiter.hit("k", 3).reset_us == _us(end) - _us(inside), words
            assert limiter.hit("k").retry_us == _us(end) - _us(inside), words
            clock.us = _us(end) - 1
            assert (limiter.hit("k").retry_us, limiter.hit("other", 2).reset_us) == (1, 1), words
            clock.us = _us(end)
            assert (limiter.hit("k").remaining, limiter.hit("other").remaining) == (2, 2), words

    def test_a_charge_of_the_calendar_is_given_back(self) -> None:
        """A refund, a reset and a plan meet the count of the window; a refund after its end changes nothing."""
        clock = ManualClock(1_780_000_000.0)
        limiter = Limiter("3/month in Asia/Kathmandu", store=self.store(clock), on_error="raise")
        charged = limiter.hit("k", 2)
        assert limiter.hit("k", limit="5/month in Asia/Kathmandu").remaining == 2
        limiter.refund(charged)
        assert limiter.peek("k").remaining == 2
        charged = limiter.hit("k", 2)
        clock.us += charged.reset_us
        assert limiter.hit("k").remaining == 2
        limiter.refund(charged)
        assert limiter.peek("k").remaining == 2
        limiter.reset("k")
        assert limiter.peek("k").remaining == 3

    def test_a_key_has_its_own_seam_on_every_store(self) -> None:
        """Scattered windows of a key begin at the same time on every store, and not at that of another key."""
        clock = ManualClock(1_780_000_000.0)
        limiter = Limiter("3/minute by fixed-window scattered", store=self.store(clock), on_error="raise")
        assert {key: limiter.hit(key, 3).reset_after for key in SEAMS} == SEAMS
        for key, left in SEAMS.items():
            clock.us = 1_780_000_000_000_000 + round(left * 1e6) - 1
            assert limiter.hit(key).retry_us == 1, key
            clock.us += 1
            assert (limiter.hit(key, 3).reset_after, limiter.peek(key).retry_after) == (60.0, 60.0), key

    def test_an_amount_of_nothing_lets_nobody_pass(self) -> None:
        """`0/minute` refuses every cost for ever, also as a plan of a limit that has counted; a cost of 0 passes."""
        for algorithm in (*EVERY_ALGORITHM, "fixed-window scattered"):
            own, none = (f"{amount}/minute by {algorithm}" for amount in (15, 0))
            limiter = Limiter(own, store=self.store(ManualClock(1_780_000_000.0)), on_error="raise")
            limiter.hit("k", 13)
            refused = limiter.hit("k", limit=none)
            assert (refused.allowed, refused.never, refused.remaining) == (False, True, 0), algorithm
            assert not limiter.take_up_to("new", 5, limit=none), algorithm
            assert limiter.hit("k", 0, limit=none), algorithm
            assert limiter.hit("k", 2).remaining == 0, algorithm
