"""Limiters under trio, the other backend of anyio: what needs no loop works, and all else says so and does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

from headgate import AsyncLimiter, AsyncShaper, Call, InvalidCall, Limiter
from headgate.testing import ManualClock
from tests.support.homes import LATER

pytestmark = pytest.mark.engineless

SAYS = "trio is not supported.*Run the app on asyncio, or call a Limiter in a thread"


def on_trio(story: Callable[[], Awaitable[Any]]) -> Any:
    """Run a story on anyio's trio backend; one that hangs fails."""

    async def bounded() -> Any:
        with trio.fail_after(20):
            return await story()

    return anyio.run(bounded, backend="trio")


def slow() -> AsyncLimiter:
    return AsyncLimiter("1/second burst 1", clock=ManualClock(LATER))


def test_what_fits_now_is_decided():
    """No loop is needed for a decision in memory: hits, peeks, reservations without a delay, permits and refunds."""

    async def story() -> list[Any]:
        limiter, flight = slow(), AsyncLimiter("1 in flight")
        first = await limiter.hit("k")
        told = [bool(first), bool(await limiter.hit("k")), (await limiter.peek("k")).remaining]
        await limiter.refund(first)
        told.append(bool(await limiter.acquire("k")))
        async with limiter.reserve("other"), flight.permit("k"):
            told.append(bool(await flight.hit("k")))
        told.append((await limiter.acquire("k", timeout=0.5)).retry_after)
        await limiter.aclose()
        return told

    assert on_trio(story) == [True, False, 0, True, False, 1.0]


@pytest.mark.parametrize("verb", ["acquire", "acquire_all", "reserve", "permit", "limited", "stream", "shape"])
def test_a_wait_raises_and_charges_nothing(verb):
    """The error names trio and what to do; the key has as much left as before."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("1/second burst 1", clock=clock)
    shaper = AsyncShaper("1/second queue 5", clock=clock)
    flight = AsyncLimiter("1 in flight", clock=clock)

    async def reserve() -> None:
        async with limiter.reserve("k"):
            raise AssertionError("it did not wait")

    async def stream() -> list[Any]:
        return [chunk async for chunk in limiter.stream("k", [b"ab"])]

    async def permit() -> None:
        async with flight.permit("k"), flight.permit("k", timeout=None):
            raise AssertionError("it did not wait")

    async def shape() -> None:
        await shaper.shape("k")
        await shaper.shape("k")

    async def story() -> list[float]:
        await limiter.hit("k")
        verbs: dict[str, Callable[[], Awaitable[Any]]] = {
            "acquire": lambda: limiter.acquire("k"),
            "acquire_all": lambda: limiter.acquire_all(Call(limiter.limits[0], "k")),
            "reserve": reserve,
            "permit": permit,
            "limited": limiter.limited("k", timeout=None)(stream),
            "stream": stream,
            "shape": shape,
        }
        with pytest.raises(InvalidCall, match=SAYS):
            await verbs[verb]()
        return [(await limiter.peek("k")).retry_after, (await flight.peek("k")).retry_after]

    assert on_trio(story) == [1.0, 0.0]


@pytest.mark.parametrize("on_error", ["raise", "allow", "deny", "local"])
@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_a_store_that_is_awaited_raises(kind, on_error, tmp_path, request):
    """Whatever `on_error` says: trio is not an outage, and an answer would be a yes that nobody has counted."""
    url = f"sqlite://{tmp_path}/limits.db" if kind == "sqlite" else request.getfixturevalue("server").url

    async def story() -> None:
        limiter = AsyncLimiter("1/second", store=url, on_error=on_error)
        for ask in (limiter.hit, limiter.peek, limiter.acquire, limiter.reserve, limiter.reset):
            with pytest.raises(InvalidCall, match=SAYS):
                await ask("k")

    on_trio(story)


def test_a_limiter_in_a_thread_waits():
    """As the message says: a thread waits, and the tasks of trio go on."""
    limiter = Limiter("1/second burst 1", clock=ManualClock(LATER))

    async def story() -> list[bool]:
        return [bool(await trio.to_thread.run_sync(limiter.acquire, "k")) for _ in range(2)]

    assert on_trio(story) == [True, True]
