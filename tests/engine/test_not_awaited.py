"""A question that is not awaited has no truth: `if limiter.hit(key):` must not let everything pass."""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from unittest import mock

import pytest

from headgate import AsyncLimiter, AsyncShaper, Call, InvalidCall
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.homes import EVERY_HOME, home_of

ASKED = {
    "hit": lambda limiter: limiter.hit("k"),
    "peek": lambda limiter: limiter.peek("k"),
    "take_up_to": lambda limiter: limiter.take_up_to("k", 1),
    "acquire": lambda limiter: limiter.acquire("k"),
    "reserve": lambda limiter: limiter.reserve("k"),
    "decide": lambda limiter: limiter.decide(Call(limiter.limits[0], "k")),
    "permit": lambda limiter: limiter.permit("k"),
}


@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("home", EVERY_HOME)
def test_the_truth_of_a_question_raises(home, verb):
    """On every store, for every verb that can be refused; nothing is charged, and awaited it is the answer."""
    with home_of(home) as place:

        async def story(store):
            limiter = AsyncLimiter("5/minute", store=store)
            with pytest.raises(InvalidCall, match="await"):
                if ASKED[verb](limiter):
                    pytest.fail("a coroutine was taken for a yes")
            assert (await limiter.peek("k", 0)).remaining == 5
            assert await ASKED[verb](limiter)

        place.tell(story)


@pytest.mark.parametrize("verb", ["shape", "enter"])
@pytest.mark.parametrize("home", EVERY_HOME)
def test_the_truth_of_a_place_in_a_queue_raises(home, verb):
    """A shaper that is not awaited shapes nothing, and no caller may take it for a yes; awaited it is the answer."""
    with home_of(home) as place:

        async def story(store):
            shaper = AsyncShaper("5/minute queue 5", store=store)
            with pytest.raises(InvalidCall, match="await"):
                if getattr(shaper, verb)("k"):
                    pytest.fail("a coroutine was taken for a yes")
            assert await getattr(shaper, verb)("k")
            assert await asyncio.create_task(shaper.enter("k"))

        place.tell(story)


@pytest.fixture
def limiter():
    return AsyncLimiter("5/minute", clock=ManualClock(1e9))


@pytest.mark.parametrize("verb", ["hit", "peek", "take_up_to", "acquire", "decide"])
def test_a_question_is_a_coroutine_for_everything_that_takes_one(limiter, verb):
    """Tasks, groups of tasks, gather and wait_for."""

    async def story():
        ask = ASKED[verb]
        assert asyncio.iscoroutine(question := ask(limiter))
        assert await question
        assert await asyncio.create_task(ask(limiter))
        assert await asyncio.wait_for(ask(limiter), 10)
        assert all(await asyncio.gather(ask(limiter)))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(limiter))
        return task.result()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        granted = asyncio.run(story())
    assert granted is not None


@pytest.mark.parametrize("verb", ["hit", "take_up_to", "acquire"])
def test_a_question_is_asked_once(limiter, verb):
    """Awaited again it raises, as every coroutine does, and is not charged again."""

    async def story():
        question = ASKED[verb](limiter)
        spent = (await question).granted
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await question
        return spent, (await limiter.peek("k", 0)).remaining

    spent, left = asyncio.run(story())
    assert spent + left == 5


@pytest.mark.parametrize("verb", ["hit", "take_up_to", "acquire"])
def test_a_question_that_nobody_awaits_is_warned_of(limiter, verb):
    """As Python warns of its own; at the line that let go of it."""
    with pytest.warns(RuntimeWarning, match=f"coroutine '{verb}' was never awaited") as told:
        ASKED[verb](limiter)
    assert re.search(r"test_not_awaited\.py$", told[0].filename)


def test_a_task_that_is_cancelled_before_it_starts_asks_nothing(limiter):
    """Nothing is charged and nothing is warned of."""

    async def story():
        for verb in ("hit", "take_up_to", "acquire"):
            task = asyncio.create_task(ASKED[verb](limiter))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return (await limiter.peek("k", 0)).remaining

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(story()) == 5


def test_a_waiting_question_can_be_cancelled(limiter):
    """A task that waits inside `acquire` is cancelled there, and gives back what it had charged."""

    async def story():
        await limiter.hit("k", 5)
        task = asyncio.create_task(limiter.acquire("k"))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await limiter.peek("k", 0)

    assert asyncio.run(story()).reset_after == 60.0


@awaited
async def test_mistakes_in_a_call_are_told_when_it_is_made_or_awaited(limiter):
    """A key that is none, and an argument that is none."""
    with pytest.raises(InvalidCall, match="key"):
        await limiter.hit("")
    with pytest.raises(TypeError, match="cots"):
        await limiter.hit("k", cots=2)
    assert (await limiter.hit("k", 2, limit="9/minute")).remaining == 7


@pytest.mark.parametrize("verb", ["hit", "peek", "take_up_to", "acquire", "reserve", "decide"])
def test_frameworks_and_mocks_see_a_coroutine_function(limiter, verb):
    """FastAPI awaits such a dependency, and `create_autospec` makes an AsyncMock of it."""
    method = getattr(limiter, verb)
    assert inspect.iscoroutinefunction(method)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # from 3.14 on
        assert asyncio.iscoroutinefunction(method)
    assert inspect.signature(method) == inspect.signature(getattr(AsyncLimiter, verb).__get__(limiter))
    assert (method.__name__, method.__doc__) == (verb, getattr(AsyncLimiter, verb).__doc__)
    assert isinstance(getattr(mock.create_autospec(limiter), verb), mock.AsyncMock)
