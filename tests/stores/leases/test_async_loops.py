"""Leases of limiters that serve several event loops, and loops that end."""

from __future__ import annotations

import asyncio
import gc
import threading

from headgate import AsyncLimiter, Lease, Limiter
from tests.stores.leases.test_async import hits, tell, until
from tests.support.faults import PATIENT
from tests.support.leasing import BEFORE_LOW, MOST, WINDOW, Bank, drain, warm


def test_a_limiter_serves_one_event_loop_after_the_other(server):
    """Leases that have run out come back in the second loop too."""
    bank = Bank(server)
    limiter = AsyncLimiter(WINDOW, store=bank.store, lease=Lease(validity=0.05), on_error="raise")

    async def main(before: int) -> None:
        await hits(limiter, 30)
        bank.clock.advance(1)
        await until(lambda: bank.charged(WINDOW) == before + 30, "the rest is given back")
        await hits(limiter, 30)
        bank.clock.advance(1)  # what is held is void in the next one
        await bank.store.aclose()

    for before in (0, 60, 120):
        asyncio.run(main(before))
    bank.close()


def test_a_loop_that_ends_while_permits_are_bought_does_not_stop_the_next_one(server, proxy):
    """The next loop buys leases of its own; only the reply that nobody heard is lost."""
    bank = Bank(server, url=proxy.url)
    limiter = AsyncLimiter(WINDOW, store=bank.store, lease=True, on_error="raise")

    async def first() -> None:
        await hits(limiter, BEFORE_LOW)
        proxy.hold()
        await limiter.hit("k")
        await until(lambda: bank.charged(WINDOW) > 100, "the next lease is charged")
        bank.store.close()

    async def second() -> int:
        proxy.release()
        before = bank.trips()
        async with asyncio.timeout(10):
            admitted = await hits(limiter, 1000)
        assert bank.trips() - before < 40
        await limiter.aclose()
        await bank.store.aclose()
        return admitted

    asyncio.run(first())
    assert asyncio.run(second()) == 1000
    assert bank.charged(WINDOW) == BEFORE_LOW + 1 + 1000 + 80  # the reply that nobody heard
    bank.close()


def test_a_loop_that_ends_starts_nothing_any_more(server, proxy):
    """Leases that end while `asyncio.run` waits for its threads start no task: nobody would await it."""
    complaints: list[str] = []
    bank = Bank(server, url=proxy.url)
    ends = threading.Event()

    def let_leases_end(loop: asyncio.AbstractEventLoop) -> None:
        assert ends.wait(PATIENT)
        later = loop.time() + 10
        loop.time = lambda: later  # type: ignore[method-assign]
        for _ in range(3):
            turned = threading.Event()
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(PATIENT)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
        await hits(AsyncLimiter(WINDOW, store=bank.store, lease=True), BEFORE_LOW)
        await bank.store.aclose()
        proxy.hold_requests()
        bank.clock.advance(1)
        working = loop.create_task(asyncio.to_thread(let_leases_end, loop))
        working.add_done_callback(lambda _: ends.set())  # when `asyncio.run` cancels every task
        await asyncio.sleep(0)

    asyncio.run(main())
    bank.close()
    gc.collect()
    assert complaints == []


def test_two_event_loops_at_once_share_the_leases_of_one_limiter(server):
    """Two loops in two threads admit together what the server was charged."""
    bank = Bank(server)
    limiter = AsyncLimiter(WINDOW, store=bank.store, lease=True, on_error="raise")
    admitted: list[int] = []

    async def main() -> None:
        async with asyncio.timeout(20):
            admitted.append(sum(await asyncio.gather(*(hits(limiter, 100) for _ in range(20)))))
            await limiter.aclose()
        await bank.store.aclose()

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), sum(admitted)) == (2, bank.charged(WINDOW))
    assert sum(admitted) + drain(bank.plain(WINDOW)) == MOST
    bank.close()


def test_closing_waits_for_what_is_on_its_way_back(server, proxy):
    """`aclose` returns when the server has what was given back."""

    async def story(bank: Bank, limiter: AsyncLimiter) -> None:
        await hits(limiter, 30)
        proxy.hold_requests()
        bank.clock.advance(1)
        requests = proxy.requests
        await until(lambda: proxy.requests > requests, "the rest is on its way")
        closing = asyncio.create_task(limiter.aclose())
        await asyncio.sleep(0.05)
        assert not closing.done()
        proxy.release()
        await closing
        await bank.store.aclose()
        assert bank.charged(WINDOW) == 30

    tell(server, story, url=proxy.url, lease=Lease(validity=0.05))


def test_a_context_manager_gives_everything_back(server):
    """A limiter that is left by its `with` block has only what was spent charged."""
    limit = "3000/4 weeks by fixed-window"

    async def main() -> None:
        async with AsyncLimiter(limit, store=f"{server.url}?deadline=5", lease=True) as limiter:
            assert await hits(limiter, 100) == 100

    asyncio.run(main())
    with Limiter(limit, store=f"{server.url}?deadline=5", lease=True) as limiter:
        assert warm(limiter, hits=100) == 100
    with Limiter(limit, store=f"{server.url}?deadline=5", on_error="raise") as plain:
        assert plain.peek("k", 0).remaining == 2800
