"""Tokens that go back before the end of a fixed window, so that they are not lost there."""

from __future__ import annotations

import pytest

from headgate import Lease, Limit, MemoryStore
from headgate.engine.lease_cache import leased_tokens_for
from headgate.stores.gate import Gate
from headgate.stores.leases.ledger import LeaseLedger
from headgate.testing import ManualClock

pytestmark = pytest.mark.engineless

MS = 1000


class Process:
    """A process that asks for a key of `100/second` four times in 0.3 s, in the middle of a window."""

    def __init__(self, used: int, validity: float = 1.0) -> None:
        self.clock, limits = ManualClock(1e9), (Limit.parse("100/second by fixed-window"),)
        store = MemoryStore(clock=self.clock)
        self.server = Gate(store, "server", limits)
        tokens = leased_tokens_for(store.bind("node", limits), lambda *_: pytest.fail("not asked"))
        self.ledger = LeaseLedger(limits, Lease(validity=validity), tokens, self.clock.now_us)
        self.server.hit("k", used)
        for _ in range(4):
            self.ledger.wanted("k", 1)
            self.clock.advance(0.1)

    def buy(self, units: int, *, crowded: bool) -> None:
        """Take units; the server says whether many processes ask."""
        question = self.ledger.asking("k", 1, units)
        assert question is not None
        decision = self.server.take_up_to("k", units)
        self.ledger.granted("k", question[0], self.clock.now_us(), decision, (200 * MS, crowded))

    def tokens(self) -> int:
        """The tokens that can be spent now."""
        return sum(self.ledger.tokens(self.ledger.grants("k")))

    def given(self) -> list[int]:
        """Give back the tokens that are due; their numbers."""
        return [each.units for each in self.ledger.unused()]


def test_tokens_that_will_hardly_be_asked_for_go_back_before_the_end_of_the_window():
    """Of ten tokens, three are likely to be spent in the last 200 ms: seven go back, and three can still be spent."""
    process = Process(used=80)
    process.buy(10, crowded=True)
    assert (process.given(), process.ledger.next_return()) == ([], 400 * MS)
    process.clock.advance(0.4)
    assert (process.given(), process.tokens()) == ([7], 3)
    assert [process.ledger.spend("k", 1) is not None for _ in range(4)] == [True, True, True, False]


def test_tokens_are_looked_at_again_until_the_window_ends():
    """Three tokens are not too many for 200 ms, but for 50 ms they are."""
    process = Process(used=80)
    process.buy(3, crowded=True)
    found = []
    for pause in (0.4, 0.1, 0.05):
        process.clock.advance(pause)
        found.append((process.given(), process.tokens()))
    assert found == [([], 3), ([], 3), ([2], 1)]


def test_a_look_that_is_a_little_early_counts():
    """A timer may call 5 ms before the instant, and the next one would come too late."""
    process = Process(used=80)
    process.buy(10, crowded=True)
    process.clock.advance(0.394999)
    assert (process.given(), process.tokens()) == ([], 10)
    process.clock.advance(0.000001)
    assert (process.given(), process.tokens()) == ([7], 3)


def test_a_refund_after_an_early_return_does_not_bring_back_what_was_returned():
    """The lease holds at most the tokens that it was charged and has not returned."""
    process = Process(used=80)
    process.buy(10, crowded=True)
    decision = process.ledger.spend("k", 1)
    assert decision is not None
    process.clock.advance(0.4)
    assert process.given() == [6]
    mark = decision.verdicts[0].mark
    process.ledger.refund("k", 9, mark[1])
    assert process.tokens() == 4


@pytest.mark.parametrize(
    ("used", "validity", "crowded"),
    [(80, 1.0, False), (10, 1.0, True), (80, 0.5, True)],
    ids=["few processes", "much is left", "the lease ends before the window"],
)
def test_tokens_are_kept_until_the_lease_ends_if_no_other_process_needs_them(used, validity, crowded):
    """No message is sent where few processes ask, where much is left, or where the tokens come back anyway."""
    process = Process(used, validity)
    process.buy(10, crowded=crowded)
    for _ in range(9):
        process.clock.advance(0.05)
        assert (process.given(), process.tokens()) == ([], 10)
