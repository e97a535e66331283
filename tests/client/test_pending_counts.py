"""Counts of requests that go at once: told twice a second, and the same as if each had been told by itself."""

from __future__ import annotations

from random import Random
from threading import Thread

import pytest

from headgate.client.counts import Counter
from headgate.client.pending_counts import PendingCounts
from headgate.client.rate_finder import RateFinder
from headgate.client.retry_budget import RetryBudget
from headgate.client.throttle import Throttle
from headgate.clock import MILLISECOND, SECOND

pytestmark = pytest.mark.engineless


class Books:
    """All that counts the requests of one key."""

    def __init__(self) -> None:
        self.finder, self.retry_budget, self.throttle = RateFinder(), RetryBudget(), Throttle()

    def seen(self, now: int) -> tuple[float | None, int, float]:
        """Return the rate of what was sent, the retries that are possible, and the chance to be refused."""
        retries = 0
        while self.retry_budget.begin(now):
            retries += 1
        for _ in range(retries):
            self.retry_budget.cancel()
        for _ in range(50):
            self.throttle.count(now, accepted=False)
        return self.finder.sending(now), retries, self.throttle.chance(now)


def test_counts_that_are_told_together_are_the_same():
    """1,000 requests in 20 s, at random: every count has the same requests at the same time."""
    chance, pending_books, books = Random(5), Books(), Books()
    counts = PendingCounts(pending_books.finder, pending_books.retry_budget, pending_books.throttle)
    now = 0
    for _ in range(1_000):
        now += chance.randrange(40 * MILLISECOND)
        if now >= counts.ends_us:
            counts.begin(now)
        counts.sent()
        counts.passed()
        books.retry_budget.count_request(now)
        books.finder.sent(now)
        books.finder.passed(now)
        books.throttle.count(now, accepted=True)
    counts.tell()
    seen = books.seen(now)
    assert pending_books.seen(now) == seen
    assert seen[1] > 40
    assert pending_books.finder.is_idle


def test_an_answer_counts_with_the_last_request_that_was_sent():
    """No clock is read for it: 100 answers that come after the last request are those of its half second."""
    books = Books()
    counts = PendingCounts(books.finder, books.retry_budget, books.throttle)
    counts.begin(3 * SECOND)
    for _ in range(100):
        counts.passed()
    counts.begin(125 * SECOND)
    for _ in range(20):
        books.throttle.count(123 * SECOND, accepted=False)
    assert books.throttle.chance(124 * SECOND) == 0.9  # 0 if they were still remembered
    assert counts.ends_us == 125 * SECOND + SECOND // 2


def test_a_counter_loses_nothing_between_threads():
    """Four threads add while another one reads: the parts that were read are the whole."""
    counter = Counter()

    def add() -> None:
        for _ in range(5_000):
            counter.add()

    threads = [Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    parts = [counter.since() for _ in range(100)]
    for thread in threads:
        thread.join()
    assert sum(parts) + counter.since() == 20_000
    assert counter.since() == 0
