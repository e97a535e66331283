"""`LoadShedder` in event loops: waiting, cancelling, and the queue that only the loop has."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from headgate import InvalidCall, Overloaded
from headgate.shed import LoadShedder, current_class
from headgate.testing import ManualClock


async def turns(count=5):
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_wait_in_the_order_of_their_class():
    """Requests that wait are served when a permit ends: the highest class first, then in the order of arrival."""
    order = []

    async def request(shedder, name, request_class):
        async with shedder.permit(request_class, timeout=60):
            order.append((name, current_class()))

    async def main():
        shedder = LoadShedder(4)
        held = [shedder.permit() for _ in range(4)]
        names = [("a", "sheddable"), ("b", "critical"), ("c", "sheddable"), ("d", "critical_plus")]
        tasks = [asyncio.create_task(request(shedder, *each)) for each in names]
        await turns()
        assert shedder.stats().waiting == 4
        for permit in held:
            permit.release()
            await turns()
        await asyncio.gather(*tasks)
        assert shedder.stats().in_flight == 0

    asyncio.run(main())
    assert order == [("d", "critical_plus"), ("b", "critical"), ("a", "sheddable"), ("c", "sheddable")]


def test_a_task_waits_until_its_timeout():
    """The timeout is exact on the shedder's clock."""

    async def main():
        clock = ManualClock()
        shedder = LoadShedder(1, clock=clock)
        held = shedder.permit()
        task = asyncio.create_task(shedder.permit(timeout=0.5).__aenter__())
        await turns()
        clock.advance(0.499999)
        await turns()
        assert not task.done()
        clock.advance(0.000001)
        await turns()
        with pytest.raises(Overloaded, match="queue"):
            task.result()
        assert shedder.stats().waiting == 0
        held.release()

    asyncio.run(main())


def test_a_cancelled_task_leaves_nothing_behind():
    """Cancelled while it waits, or just when its permit was granted: the place and the permit are free again."""

    async def main():
        shedder = LoadShedder(1)
        for granted in (False, True):
            held = shedder.permit()
            task = asyncio.create_task(shedder.permit(timeout=60).__aenter__())
            await turns()
            if granted:
                held.release()  # the task has not run since
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            held.release()
            assert (shedder.stats().in_flight, shedder.stats().waiting) == (0, 0)

    asyncio.run(main())


def test_threads_and_loops_share_one_limit():
    """A permit that ends in a thread wakes a task of a loop."""

    async def main():
        shedder = LoadShedder(1)
        held = shedder.permit()
        task = asyncio.create_task(shedder.permit(timeout=60).__aenter__())
        await turns()
        thread = threading.Thread(target=held.release)
        thread.start()
        permit = await task
        thread.join()
        permit.release()
        assert shedder.stats().in_flight == 0

    asyncio.run(main())


def test_a_closed_loop_does_not_keep_its_permits():
    """A permit that is granted to a task whose loop was closed goes to the next request."""
    shedder = LoadShedder(1)
    held = shedder.permit()
    loop = asyncio.new_event_loop()
    dropped: list[str] = []
    loop.set_exception_handler(lambda _, context: dropped.append(context["message"]))
    task = loop.create_task(shedder.permit(timeout=60).__aenter__())
    loop.run_until_complete(turns())
    loop.close()
    held.release()
    assert shedder.permit().release()
    assert not task.done()
    del task, loop, held, shedder
    gc.collect()  # here, and not in another test
    assert dropped == ["Task was destroyed but it is pending!"]


def test_time_between_turns_is_not_a_delay():
    """A request in a later turn of the loop does not count the time of the turns before."""

    async def main():
        clock = ManualClock()
        shedder = LoadShedder(100, clock=clock)
        for _ in range(3):
            assert shedder.permit("sheddable")
            clock.advance(1)
            await turns()

    asyncio.run(main())


def test_a_block_that_would_stop_the_loop_is_refused():
    """`with` and a timeout raise inside an event loop, busy or not; nothing is held afterwards."""

    async def main():
        shedder = LoadShedder(1)
        with pytest.raises(InvalidCall, match="async with"), shedder.permit(timeout=1):
            pytest.fail("it was entered")
        with shedder.permit():
            assert shedder.stats().in_flight == 1
        assert (shedder.stats().in_flight, shedder.stats().waiting) == (0, 0)

    asyncio.run(main())
