"""The tests of a store's records: the evidence that an operator reads."""

from __future__ import annotations

from headgate.limit import as_limits
from headgate.testing.clock import ManualClock
from headgate.testing.suite_pause import PauseSuite


class RecordsSuite(PauseSuite):
    """A part of `StoreSuite`."""

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
