"""Leases in event loops: bought in tasks, off the request path, for everybody who waits; and the ledger_type stay right
whoever is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headgate import AsyncLimiter, Lease, RateLimited
from tests.support.faults import DEADLINE, FAULTS, heal
from tests.support.leasing import BEFORE_LOW, EVERY_KIND, MOST, WINDOW, Bank
from tests.support.servers import Server, wait_until

Story = Callable[[Bank, AsyncLimiter], Coroutine[Any, Any, None]]


def tell(server: Server, story: Story, limit: str = WINDOW, url: str = "", lease: Lease | bool = True, **options: Any):
    """Run a story with a limiter that leases. Nothing that it starts may fail unseen."""
    complaints: list[dict[str, Any]] = []
    on_error = options.pop("on_error", "raise")
    bank = Bank(server, url=url, **options)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        limiter = AsyncLimiter(limit, store=bank.store, lease=lease, on_error=on_error)
        try:
            async with asyncio.timeout(20):
                await story(bank, limiter)
        finally:
            await limiter.aclose()
            await bank.store.aclose()

    asyncio.run(main())
    bank.close()
    assert complaints == []


async def hits(limiter: AsyncLimiter, count: int, key: str = "k") -> int:
    """One after the other; how many were admitted."""
    return sum([(await limiter.hit(key)).allowed for _ in range(count)])


async def prepare(limiter: AsyncLimiter) -> None:
    """Let the server know every script: while replies are held, what has to be sent again does not arrive."""
    await hits(limiter, 50, "other")
    await limiter.reset("other")


async def until(true: Callable[[], object], what: str) -> None:
    """While the loop goes on."""
    await asyncio.to_thread(wait_until, true, what)


@EVERY_KIND
def test_many_tasks_on_one_key_admit_exactly_the_limit(server, limit):
    """5120 hits of 256 tasks admit the limit, and the server is charged as much."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        assert sum(await asyncio.gather(*(hits(limiter, 20) for _ in range(256)))) == MOST
        assert bank.charged(limit) == MOST

    tell(server, story, limit)


def test_many_tasks_on_one_key_ask_the_server_a_few_times(server):
    """10,240 hits of 256 tasks take fewer than 60 questions."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        before = bank.trips()
        assert sum(await asyncio.gather(*(hits(limiter, 40) for _ in range(256)))) == 256 * 40
        assert bank.trips() - before < 60
        await limiter.aclose()
        assert bank.charged(limit) == 256 * 40

    limit = "70000/hour by fixed-window"
    tell(server, story, limit)


def test_whatever_tasks_do_the_server_is_charged_what_was_admitted(server):
    """Hits, refunds and peeks of 32 tasks leave the server charged with what they spent."""

    async def work(limiter: AsyncLimiter, number: int) -> int:
        spent = 0
        for step in range(40):
            cost = (1, 1, 1, 2, 7, 1, 30)[(step + number) % 7]
            decision = await limiter.hit(f"k{number % 2}", cost)
            spent += cost * decision.allowed
            if step % 6 == 0:
                await limiter.refund(decision, 1)
                spent -= decision.allowed
            if step % 10 == 0:
                await limiter.peek(f"k{number % 2}", cost)
        return spent

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        spent = sum(await asyncio.gather(*(work(limiter, number) for number in range(32))))
        await limiter.aclose()
        assert bank.charged(limit, "k0") + bank.charged(limit, "k1") == spent

    limit = "70000/hour by fixed-window"
    tell(server, story, limit)


def test_who_finds_a_lease_low_does_not_wait_and_who_finds_it_empty_waits_for_one_purchase(server, proxy):
    """A low lease is bought ahead; 50 tasks that find it empty wait for one purchase."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        await hits(limiter, BEFORE_LOW)
        held = bank.charged(WINDOW)
        proxy.hold()
        assert await hits(limiter, 5) == 5
        waiting = [asyncio.create_task(limiter.hit("k")) for _ in range(50)]
        await until(lambda: bank.charged(WINDOW) > held, "the next lease is charged")
        await asyncio.sleep(0)
        assert bank.charged(WINDOW) == held + 80
        assert not any(task.done() for task in waiting)
        proxy.release()
        assert all(decision.allowed for decision in await asyncio.gather(*waiting))
        assert bank.charged(WINDOW) == held + 80
        await limiter.aclose()
        assert bank.charged(WINDOW) == BEFORE_LOW + 55

    tell(server, story, url=proxy.url)


@pytest.mark.parametrize("first", [True, False], ids=["who began it", "who joined"])
def test_who_is_cancelled_while_permits_are_bought_leaves_them_to_the_others(server, proxy, first):
    """A purchase goes on without the tasks that were cancelled, and what they did not spend is given back."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        await prepare(limiter)
        await hits(limiter, 2)
        proxy.hold()
        waiting = [asyncio.create_task(limiter.hit("k")) for _ in range(4)]
        await until(lambda: bank.charged(WINDOW) == 7, "a lease is charged")
        gone = waiting[:2] if first else waiting[2:]
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        proxy.release()
        stayed = [task for task in waiting if task not in gone]
        assert all(decision.allowed for decision in await asyncio.gather(*stayed))
        assert all(task.cancelled() for task in gone)
        assert bank.charged(WINDOW) == 7
        await limiter.aclose()
        assert bank.charged(WINDOW) == 4

    tell(server, story, url=proxy.url)


def test_what_has_run_out_comes_back_though_nobody_asks_any_more(server):
    """Unspent tokens are given back when their lease ends, again and again."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        for count in (30, 60):  # and again, after the loop had nothing to look after
            await hits(limiter, 30)
            await asyncio.sleep(0.15)  # whoever looks finds nothing yet, and comes again
            bank.clock.advance(1)
            await until(lambda: bank.charged(WINDOW) == count, "the rest is given back")  # noqa: B023
            await asyncio.sleep(0.15)

    tell(server, story, lease=Lease(validity=0.05))


async def _verbs(limiter: AsyncLimiter) -> int:
    """Every way to spend, from a lease where there is one: units spent."""
    async with limiter.permit("k", 3, timeout=None):
        pass
    assert (await limiter.acquire("k", 2)).allowed
    async with limiter.reserve("k", 5):
        pass
    reservation = await limiter.reserve("k", 10)
    await reservation.settle(6)
    await (await limiter.reserve("k", 8)).cancel()
    with pytest.raises(ZeroDivisionError):
        async with limiter.reserve("k", 8):
            raise ZeroDivisionError
    async with limiter.permit("k", 4):
        pass
    with pytest.raises(RateLimited):
        async with limiter.permit("k", MOST + 1, timeout=None):
            pass
    return 20


@EVERY_KIND
def test_every_way_to_spend_is_charged_once(server, limit):
    """Each verb, on a cold and on a leased key, is charged what it spent."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        spent = 0
        for count in (0, 50, 50):
            spent += await hits(limiter, count) + await _verbs(limiter)
        await limiter.aclose()
        assert bank.charged(limit) == spent == 160

    tell(server, story, limit)


def test_a_purchase_that_a_reset_overtakes_is_never_spent(server, proxy):
    """Tokens bought before a reset do not add to the fresh limit."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        await prepare(limiter)
        await hits(limiter, 2)
        proxy.hold()
        hit = asyncio.create_task(limiter.hit("k"))
        await until(lambda: bank.charged(WINDOW) == 7, "a lease is charged")
        reset = asyncio.create_task(limiter.reset("k"))
        await asyncio.sleep(0.05)
        proxy.release()
        await reset
        assert (await hit).allowed
        assert bank.charged(WINDOW) + await hits(limiter, MOST + 10) == MOST

    tell(server, story, url=proxy.url)


@pytest.mark.parametrize("on_error", ["raise", "deny"])
def test_what_fails_in_the_background_is_logged_and_nothing_more(server, proxy, caplog, on_error):
    """Tokens that cannot be given back are lost with a line in the log, whatever `on_error` says."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        await hits(limiter, 30)
        FAULTS["nobody there"].inflict(proxy)
        bank.clock.advance(1)
        await until(lambda: "tokens were lost" in caplog.text, "giving back fails")
        heal(proxy)

    tell(server, story, url=proxy.url, on_error=on_error, deadline=DEADLINE, lease=Lease(validity=0.05))
