"""Leases across forks."""

from __future__ import annotations

import asyncio
import os

import pytest

from headgate import AsyncLimiter, Lease
from tests.support.forks import in_child
from tests.support.inside_leases import lease_locks
from tests.support.leasing import BEFORE_LOW, MOST, WINDOW, Bank, open_bank, warm
from tests.support.servers import wait_until

pytestmark = [pytest.mark.engineless, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
def test_a_fork_leaves_the_permits_to_the_parent(server):
    """A child asks the server for its own tokens, and the parent's refunds stay the parent's."""
    with open_bank(server) as bank:
        limiter = bank.limiter(WINDOW)
        decision = [limiter.hit("k") for _ in range(50)][-1]
        held = bank.charged(WINDOW) - 50

        def work() -> list[int]:
            before = bank.trips()
            first = limiter.hit("k").remaining
            asked = bank.trips() - before
            limiter.refund(decision)  # it is the parent's
            spent = warm(limiter, hits=99)
            limiter.close()
            return [first, asked, spent]

        assert in_child(work) == [MOST - 50 - held - 1, 1, 99]
        assert bank.charged(WINDOW) == 50 + held + 100
        assert warm(limiter) == 50
        limiter.close()
        assert bank.charged(WINDOW) == 200


@forks
def test_a_fork_in_the_middle_of_anything_does_not_stop_the_child(server):
    """Other threads of the parent may hold every lock there is."""
    with open_bank(server) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter)
        locks = lease_locks(limiter)
        for lock in locks:
            lock.acquire()
        admitted = in_child(lambda: warm(limiter, hits=100))
        for lock in locks:
            lock.release()
        assert (admitted, warm(limiter)) == (100, 50)
        limiter.close()


@forks
def test_an_event_loop_that_forks_while_it_buys_keeps_what_it_bought(server, proxy):
    """The child buys for itself and gives back the rest; the parent spends what was on its way."""
    bank = Bank(server, url=proxy.url)
    limiter = AsyncLimiter(WINDOW, store=bank.store, lease=Lease(validity=0.05), on_error="raise")

    async def hits(count: int) -> int:
        async with asyncio.timeout(10):
            return sum([(await limiter.hit("k")).allowed for _ in range(count)])

    async def child() -> int:
        charged = bank.charged(WINDOW)
        admitted = await hits(100)
        await asyncio.sleep(0.2)  # what is bought ahead has arrived
        bank.clock.advance(1)
        await asyncio.to_thread(wait_until, lambda: bank.charged(WINDOW) == charged + 100, "the rest is given back")
        await bank.store.aclose()
        return admitted

    async def parent() -> None:
        await hits(BEFORE_LOW)
        charged = bank.charged(WINDOW)
        proxy.hold()
        await hits(1)
        await asyncio.to_thread(wait_until, lambda: bank.charged(WINDOW) > charged, "the next lease is charged")
        proxy.release()
        assert in_child(lambda: asyncio.run(child())) == 100
        await hits(7)
        await limiter.aclose()
        await bank.store.aclose()

    asyncio.run(parent())
    assert bank.charged(WINDOW) == BEFORE_LOW + 108
    bank.close()
