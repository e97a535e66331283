"""The tests of a store's records: the evidence that an operator reads."""

from __future__ import annotations

from headgate.limit import as_limits
from headgate.testing.clock import ManualClock
from headgate.testing.suite_limits import EVERY_ALGORITHM
from headgate.testing.suite_pause import PauseSuite

GROWING = "10/second by {} block 1m, 10m, 1h within 1d"


class RecordsSuite(PauseSuite):
    """A part of `StoreSuite`."""

    def test_a_block_grows_for_a_key_that_is_refused_again(self) -> None:
        """The first block lasts 1 minute, the next 10, then each an hour; a day after the end all is forgotten."""
        for algorithm in EVERY_ALGORITHM:
            clock = ManualClock(1e9)
            bound = self.store(clock).bind("suite", as_limits(GROWING.format(algorithm)))
            for seconds in (60, 600, 3600, 3600):
                clock.advance(86_399)
                assert bound.run("k", (10,)).allowed, algorithm
                refused = bound.run("k", (1,))
                assert (refused.allowed, refused.retry_us) == (False, seconds * 1_000_000), algorithm
                clock.advance(seconds - 0.000001)
                assert bound.run("k", (1,)).retry_us == 1, algorithm
                assert bound.records("k")[0][0] == clock.now_us() + 1, algorithm
                clock.advance(0.000001)
            for elapsed, seconds in ((86_399.999999, 3600), (86_400, 60)):
                clock.advance(elapsed)
                assert bound.run("k", (10,)).allowed, algorithm
                assert abs(bound.run("k", (1,)).retry_us - seconds * 1_000_000) < 8, algorithm
                clock.set((clock.now_us() + seconds * 1_000_000 + 7) // 8 * 8 / 1e6)
            assert bound.run("other", (10,)).allowed, algorithm

    def test_the_end_of_a_growing_block_is_promised_to_the_microsecond(self) -> None:
        """A block ends on a multiple of 8 microseconds: a call is refused just before its retry, and admitted then."""
        for at in range(8):
            clock = ManualClock(1e9 + at / 1e6)
            bound = self.store(clock).bind("suite", as_limits("1/second block 10s, 20s"))
            bound.run("k", (1,))
            retry = bound.run("k", (1,)).retry_us
            assert (retry, (clock.now_us() + retry) % 8) == (10_000_000 + -clock.now_us() % 8, 0), at
            clock.advance((retry - 1) / 1e6)
            assert bound.run("k", (1,)).retry_us == 1, at
            clock.advance(1e-6)
            assert bound.run("k", (1,)).allowed, at

    def test_records_are_evidence(self) -> None:
        """`records` has the stamps of a log that count now, and the end of a block; reading them changes nothing."""
        clock = ManualClock(1e9)
        limits = as_limits("3/second by sliding-log block 10s; 9/minute as other")
        bound = self.store(clock).bind("suite", limits)
        assert bound.records("k") == [(0, ()), (0, ())]
        for _ in range(2):
            bound.run("k", (1, 1))
            clock.advance(0.6)
        bound.run("k", (2, 1))
        stamps = (1_000_000_000_600_000, 1_000_000_001_200_000, 1_000_000_001_200_000)
        assert bound.records("k") == [(0, stamps), (0, ())]
        assert not bound.run("k", (1, 1)).allowed
        for _ in range(2):
            assert bound.records("k") == [(1_000_000_011_200_000, stamps), (0, ())]
        assert bound.records("other") == [(0, ()), (0, ())]
        clock.advance(0.4)
        assert bound.records("k") == [(1_000_000_011_200_000, stamps[1:]), (0, ())]
        clock.advance(9.6)
        assert bound.records("k") == [(0, ()), (0, ())]
