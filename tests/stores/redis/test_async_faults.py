"""asyncio without a server, or with one that is unwell: nobody hangs, nothing is charged twice."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AsyncLimiter, StoreError
from headgate.stores.redis import RedisStore
from headgate.stores.redis.pipeline import MOST_FLYING
from tests.support.faults import (
    DEADLINE,
    FAULTS,
    MANY,
    PATIENT,
    POLICIES,
    SAID,
    SLACK,
    at_most,
    heal,
    hits,
    in_trouble,
    run,
    said,
    spent,
    with_store,
)
from tests.support.servers import wait_until

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


def test_hits_that_fail_leave_room_for_as_many(proxy):
    """More hits than may be under way at once lose their connection, and later ones are sent."""

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        proxy.hold()
        assert await hits(limiter, MOST_FLYING + 1) == [-1] * (MOST_FLYING + 1)
        heal(proxy)
        assert await hits(limiter, 3, "other") == [9_999, 9_998, 9_997]

    run(proxy.url, story)


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


@pytest.mark.filterwarnings("error")
@with_store("server")
async def test_a_connection_that_was_idle_is_looked_at_without_a_warning(store, monkeypatch):
    """A hit after a long pause is answered by the server, silently."""
    monkeypatch.setattr("headgate.stores.redis.pipeline.LONG_IDLE", 0.0)
    limiter = AsyncLimiter(MANY, store=store)
    await limiter.hit("k")
    async with asyncio.timeout(DEADLINE + SLACK):
        assert not (await limiter.hit("k")).degraded


@with_store("server")
async def test_nobody_waits_for_ever_where_the_client_library_fails(store, monkeypatch):
    """The fault is not one of the network: a warning made an error, a bug, a name that is gone."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("not what anybody expects")

    limiter = AsyncLimiter(MANY, store=store)
    await limiter.hit("k")
    with monkeypatch.context() as patch:
        patch.setattr("headgate.stores.redis.pipeline.Pipeline._receive", broken)
        async with asyncio.timeout(DEADLINE + SLACK):
            assert (await limiter.hit("k")).degraded
    assert not (await limiter.hit("k")).degraded


@with_store("proxy", deadline=PATIENT)
async def test_who_waits_when_the_store_is_closed_gets_an_answer(store, proxy):
    """Hits that are under way are answered by `on_error`, and the store can be used again."""
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
