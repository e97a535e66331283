"""asyncio without a server, or with one that is unwell: nobody hangs, nothing is charged twice."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AsyncLimiter, StoreError
from headgate.stores.redis import RedisStore, Transition
from tests.support.faults import (
    DEADLINE,
    FAULTS,
    MANY,
    NONSENSE,
    PATIENT,
    POLICIES,
    SAID,
    SLACK,
    Trickle,
    at_most,
    heal,
    hits,
    in_trouble,
    run,
    said,
    spent,
    stranger,
)
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_network_degrades_in_time_charges_once_and_leaves_no_reply_behind(server, proxy, fault):
    """Ten hits are answered within the deadline, charged once at most, and later hits get their own replies."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        FAULTS[fault].inflict(proxy)
        with at_most(DEADLINE + SLACK):
            assert await hits(limiter, 10) == [-1] * 10
        heal(proxy)
        assert await hits(limiter, 3, "other") == [9_999, 9_998, 9_997]

    run(proxy.url, story)
    wait_until(lambda: spent(server) >= 1 + 10 * FAULTS[fault].arrive, "what was sent has arrived")
    assert spent(server) == 1 + 10 * FAULTS[fault].arrive


@pytest.mark.parametrize("on_error", POLICIES)
def test_every_policy_answers_for_a_server_that_does_not(server, on_error):
    """A hit and a refund follow `on_error`; a reset that fails is always an error."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter("10/week", store=store, on_error=on_error)
        if on_error == "raise":
            with pytest.raises(StoreError):
                await limiter.hit("k")
            with pytest.raises(StoreError):
                await limiter.refund("k", 1)
        else:
            assert said(await limiter.hit("k")) == SAID[on_error]
            await limiter.refund("k", 1)
        with pytest.raises(StoreError, match="not reset"):
            await limiter.reset("k")

    with in_trouble(server, "killed") as url:
        run(url, story)


@pytest.mark.parametrize("reply", NONSENSE)
def test_nobody_waits_for_ever_for_a_server_that_talks_nonsense(reply):
    """A reply that is none is answered for by `on_error` within the deadline."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter("10/week", store=store)
        async with asyncio.timeout(DEADLINE + SLACK):
            assert said(await limiter.hit("k")) == SAID["local"]

    with stranger(reply) as url:
        run(url, story)


@pytest.mark.filterwarnings("error")
def test_a_connection_that_was_idle_is_looked_at_without_a_warning(server, monkeypatch):
    """A hit after a long pause is answered by the server, silently."""
    monkeypatch.setattr("headgate.stores.redis.pipeline.LONG_IDLE", 0.0)

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        async with asyncio.timeout(DEADLINE + SLACK):
            assert not (await limiter.hit("k")).degraded

    run(server.url, story)


def test_nobody_waits_for_ever_where_the_client_library_fails(server, monkeypatch):
    """Not a fault of the network: a warning made an error, a bug, a name that is gone."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("not what anybody expects")

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        with monkeypatch.context() as patch:
            patch.setattr("headgate.stores.redis.pipeline.Pipeline._receive", broken)
            async with asyncio.timeout(DEADLINE + SLACK):
                assert (await limiter.hit("k")).degraded
        assert not (await limiter.hit("k")).degraded

    run(server.url, story)


def test_a_reply_that_trickles_in_is_not_waited_for_beyond_the_deadline(server):
    """Bytes that arrive one by one do not prolong the deadline."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        proxy.delay(0.02)
        with at_most(DEADLINE + SLACK):
            assert (await limiter.hit("k")).degraded

    with Trickle(server) as proxy:
        run(proxy.url, story)


def test_a_script_that_has_to_be_sent_again_does_not_get_the_deadline_twice(server, proxy):
    """One deadline is for both commands."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter("10/week", store=store)
        await limiter.hit("other")
        server.client().script_flush()
        proxy.delay(0.7)
        with at_most(0.8 + SLACK):
            assert (await limiter.hit("k")).degraded

    run(proxy.url, story, deadline=0.8)


def test_nobody_waits_for_a_server_known_to_be_away_and_its_return_is_found(proxy):
    """200 hits are answered at once while it is away, and the next by the server when it is back."""
    seen: list[Transition] = []

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        proxy.hold()
        for _ in range(3):
            await limiter.hit("k")
        with at_most(SLACK):
            assert all([(await limiter.hit("k")).degraded for _ in range(200)])
        proxy.release()
        await asyncio.to_thread(wait_until, lambda: len(seen) > 1, "the server is back")
        assert not (await limiter.hit("k")).degraded

    run(proxy.url, story, on_transition=seen.append)
    assert [each.available for each in seen] == [False, True]


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_server_that_stands_still_delays_nobody_beyond_the_deadline(password):
    """Eight tasks ask it all the time, and are answered while it still stands."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")

        async def ask(key: str) -> list[bool]:
            return [(await limiter.hit(key)).degraded for _ in range(20)]

        with in_trouble(server, "paused"):
            async with asyncio.timeout(0.05 + SLACK):
                assert await asyncio.gather(*(ask(f"k{number}") for number in range(8))) == [[True] * 20] * 8

    with Server(password=password) as server:
        run(server.url, story, deadline=0.05)


def test_who_waits_when_the_store_is_closed_gets_an_answer(proxy):
    """Hits that are under way are answered by `on_error`, and the store can be used again."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        proxy.hold()
        waiting = asyncio.gather(*(limiter.hit("k") for _ in range(10)))
        await asyncio.sleep(0)
        await store.aclose()
        async with asyncio.timeout(SLACK):
            assert all(decision.degraded for decision in await waiting)
        wait_until(lambda: proxy.open_connections == 0, "everything is closed")
        proxy.release()
        assert not (await limiter.hit("k")).degraded

    run(proxy.url, story, deadline=PATIENT)
