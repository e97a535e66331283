"""The decorator that waits, and costs that depend on the arguments."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AsyncLimiter, InvalidCall, Limiter, RateLimited
from headgate.testing import ManualClock


def test_a_decorated_call_waits_for_its_turn():
    """Without a bound each call returns when it is admitted; by a manual clock that takes no time."""
    clock = ManualClock(10.0)
    limiter = Limiter("2/second", clock=clock)

    @limiter.limited(lambda chat, text: chat, timeout=None)
    def send(chat: str, text: str) -> float:
        """Send."""
        return clock.now()

    assert [send("a", "hello") for _ in range(4)] == [10.0, 10.0, 10.5, 11.0]
    assert send("b", "hello") == 11.0
    assert send.__doc__ == "Send."


def test_a_call_that_would_wait_too_long_is_refused_at_once():
    """It raises, does not run the function, and is not charged."""
    clock, ran = ManualClock(10.0), list[int]()
    limiter = Limiter("1/second", clock=clock)
    send = limiter.limited("k", timeout=1.5)(ran.append)
    for number in range(2):
        send(number)
    with pytest.raises(RateLimited) as refused:
        limiter.limited("k", timeout=0.5)(ran.append)(2)
    assert (refused.value.retry_after, ran, clock.now()) == (1.0, [0, 1], 11.0)
    assert limiter.peek("k").retry_after == 1.0


@pytest.mark.parametrize("timeout", [None, 0, 5.0])
def test_the_cost_may_be_a_function_of_the_arguments(timeout):
    """It sees the arguments of the call, and may name the limits."""
    limiter = Limiter("10/minute as calls; 100/minute as tokens", clock=ManualClock(10.0))

    @limiter.limited("k", cost=lambda prompt, most=5: {"calls": 1, "tokens": len(prompt) + most}, timeout=timeout)
    def complete(prompt: str, most: int = 5) -> int:
        return len(prompt)

    assert (complete("four"), complete("four", most=40)) == (4, 4)
    assert [verdict.remaining for verdict in limiter.peek("k", 0).verdicts] == [8, 47]


def test_units_in_flight_are_held_while_a_waiting_function_runs():
    """They are released when it ends, also by an error."""
    limiter = Limiter("1 in flight")

    @limiter.limited("k", timeout=5)
    def fail() -> None:
        assert limiter.peek("k").remaining == 0
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fail()
    assert limiter.peek("k").remaining == 1


def test_a_decorated_coroutine_waits_too():
    """Calls leave in their order, each at its instant; a call that would wait too long raises."""
    clock = ManualClock(10.0)
    limiter = AsyncLimiter("1/second", clock=clock)
    left: list[tuple[int, float]] = []

    @limiter.limited("k", cost=lambda number: 1, timeout=None)
    async def send(number: int) -> None:
        left.append((number, clock.now()))

    async def story() -> None:
        calls = [asyncio.create_task(send(number)) for number in range(3)]
        for _ in range(3):
            for _ in range(5):
                await asyncio.sleep(0)
            clock.advance(1.0)
        await asyncio.gather(*calls)
        await limiter.hit("k")
        with pytest.raises(RateLimited):
            await limiter.limited("k", timeout=0.5)(send)(3)

    asyncio.run(story())
    assert left == [(0, 10.0), (1, 11.0), (2, 12.0)]


@pytest.mark.parametrize("timeout", [-1, "5", True])
@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_timeout_that_is_no_time_is_an_error_at_decoration(kind, timeout):
    """Not at the first call."""
    with pytest.raises(InvalidCall):
        kind("1/second").limited("k", timeout=timeout)
