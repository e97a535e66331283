"""Settling: what it really cost is what stays charged, and a debt is repaid before others pass."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headgate import AsyncLimiter, InvalidCall, Limiter, StoreError
from headgate.stores.redis import RedisStore
from tests.support.flight import left
from tests.support.homes import eventually, in_each_home
from tests.support.servers import BINARIES, Server


@pytest.mark.parametrize("actual", [0, 1, 431, 499, 500, 501, 1000])
def test_what_it_really_cost_is_what_stays(make, actual, clock):
    """Less is given back, more is charged: the books are as if it had been known."""
    for text in ("1000/minute", "1000/minute by fixed-window", "1000/minute by sliding-log", "1000/minute block 5s"):
        limiter = make(text, clock=clock)
        known = make(text, clock=clock, namespace="known")
        limiter.reserve("k", 500).settle(actual)
        known.hit("k", actual)
        assert limiter.peek("k", 0).verdicts == known.peek("k", 0).verdicts, text


def test_settle_and_cancel_count_once(make, clock):
    """The first of them counts."""
    limiter = make("1000/minute", clock=clock)
    for first, second in (("settle", "settle"), ("settle", "cancel"), ("cancel", "settle"), ("cancel", "cancel")):
        reservation = limiter.reserve(first + second, 500)
        getattr(reservation, first)(*[400] * (first == "settle"))
        getattr(reservation, second)(*[100] * (second == "settle"))
        assert left(limiter, first + second) == [600 if first == "settle" else 1000]
    limiter.hit("full", 1000)
    refused = limiter.reserve("full", 500, max_wait=0)
    refused.settle(700)
    assert limiter.peek("full", 0).reset_after == 60.0


@pytest.mark.parametrize("more", [1, 9, 10, 11, 25, 100])
def test_a_debt_is_repaid_before_others_pass(make, more, clock):
    """To the microsecond, also where it is many times the burst."""
    limiter = make("7/second burst 10", clock=clock)
    limiter.reserve("k", 10).settle(10 + more)
    owed = -(-1_000_000 * (more + 1) // 7)
    refused = limiter.hit("k")
    assert (refused.allowed, refused.remaining, refused.retry_us) == (False, 0, owed)
    clock.us += owed - 1
    assert not limiter.hit("k")
    clock.us += 1
    assert limiter.hit("k")


def test_a_debt_is_waited_for_by_who_comes_next(make, clock):
    """Later reservations are promised a time after it."""
    limiter = make("10/second burst 10", clock=clock)
    limiter.reserve("k", 5).settle(45)
    assert limiter.reserve("k", 5).delay == 4.0
    assert limiter.reserve("k", 5, max_wait=4).retry_after == 4.5


def test_a_bucket_can_owe_an_hour_and_what_is_beyond_is_forgotten(make, clock):
    """A debt of a million units is repaid after an hour."""
    limiter = make("1/second burst 100", clock=clock)
    limiter.reserve("k", 100).settle(1_000_000)
    wait = limiter.hit("k").retry_after
    assert 3500 < wait <= 3601
    clock.advance(wait)
    assert limiter.hit("k")


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-log", "sliding-window"])
@pytest.mark.parametrize("actual", [11, 15, 16, 17, 40])
def test_windows_and_logs_charge_what_is_left(make, algorithm, actual, clock):
    """They cannot owe: the rest is forgotten, and comes back when the window does."""
    limiter = make(f"16/minute by {algorithm}", clock=clock)
    limiter.reserve("k", 10).settle(actual)
    assert left(limiter) == [max(0, 16 - actual)]
    clock.advance(120)
    assert left(limiter) == [16]


@pytest.mark.parametrize("actual", [15, 40])
def test_settling_starts_no_block(make, actual, clock):
    """Nobody was refused: what is left is charged, and nobody is shut out for it."""
    limiter = make("10/minute block 5m", clock=clock)
    limiter.reserve("k", 6).settle(actual)
    assert left(limiter) == [0]
    clock.advance(60)
    assert limiter.hit("k", 10)


def test_a_window_that_is_full_does_not_spare_the_bucket(make, clock):
    """Each limit is charged as far as it can bear."""
    limiter = make("10/second as fast", "12/minute by fixed-window as slow", clock=clock)
    limiter.reserve("k", 8).settle(15)
    assert left(limiter) == [0, 0]
    assert limiter.peek("k", 0).verdicts[0].reset_us == 1_500_000


@pytest.mark.parametrize(
    ("actual", "after"),
    [
        ({"tpm": 431}, [59, 569]),
        ({"tpm": 700}, [59, 300]),
        ({"rpm": 0, "tpm": 700}, [60, 300]),
        ({"rpm": 3, "tpm": 0}, [57, 1000]),
        ({"rpm": 1, "tpm": 500}, [59, 500]),
        ({"rpm": 70}, [0, 500]),
    ],
)
def test_by_name(make, actual, after, clock):
    """A limit that is not named stays as it was reserved; one limit may get back while the other is charged."""
    limiter = make("60/minute as rpm", "1000/minute as tpm", clock=clock)
    limiter.reserve("named", {"rpm": 1, "tpm": 500}).settle(**actual)
    limiter.reserve("mapped", {"rpm": 1, "tpm": 500}).settle(actual)
    assert left(limiter, "named") == left(limiter, "mapped") == after


def test_one_number_is_for_every_limit(make, clock):
    """A reservation that is settled with one number charges that number to each limit."""
    limiter = make("60/minute as rpm", "1000/minute as tpm", clock=clock)
    limiter.reserve("k", {"rpm": 1, "tpm": 500}).settle(20)
    assert left(limiter) == [40, 980]


def test_what_cannot_be_settled_is_an_error_that_changes_nothing(make, clock):
    """Names nobody has, nothing at all, both ways at once, costs that are none; it can be settled after that."""
    limiter = make("60/minute as rpm", "1000/minute as tpm", clock=clock)
    reservation = limiter.reserve("k", {"rpm": 1, "tpm": 500})
    for wrong, named, says in (
        ([], {}, "the limits are rpm, tpm"),
        ([{}], {}, "the limits are rpm, tpm"),
        ([], {"tpn": 1}, "the limits are rpm, tpm; got {'tpn': 1}"),
        ([5], {"tpm": 5}, "not both"),
        ([-1], {}, "whole number"),
        ([], {"tpm": 1.5}, "whole number"),
        (["5"], {}, "whole number"),
    ):
        with pytest.raises(InvalidCall, match=says):
            reservation.settle(*wrong, **named)
    assert left(limiter) == [59, 500]
    reservation.settle(tpm=100)
    assert left(limiter) == [59, 900]
    with pytest.raises(InvalidCall, match="the limits are not named"):
        make("5/minute", clock=clock).reserve("k").settle(tpm=1)


@in_each_home
async def test_give_backs_at_one_time_all_arrive(store, clock):
    """A hundred at once: refunds, cancels and settles, each its own."""
    limiter = AsyncLimiter("1000/second as a", store=store, on_error="raise")
    hits = [await limiter.hit("k", 2) for _ in range(100)]
    await asyncio.gather(*(limiter.refund(hit) for hit in hits))
    assert (await limiter.peek("k", 0)).remaining == 1000
    held = await asyncio.gather(*(limiter.reserve("k", 5) for _ in range(100)))
    await asyncio.gather(*(each.settle(3) if at % 2 else each.cancel() for at, each in enumerate(held)))
    assert (await limiter.peek("k", 0)).remaining == 1000 - 50 * 3


@pytest.mark.skipif("valkey" not in BINARIES, reason="there is no server here")
def test_a_degraded_reservation_gives_and_takes_nothing(clock):
    """Made while the server was away: when it is back, neither settling nor cancelling touches its books."""
    with Server(persist=True) as server:
        store = RedisStore(server.url, clock=clock, deadline=5.0, remember_refusals=0)
        limiter = Limiter("10/minute", store=store)
        limiter.hit("k", 3)
        server.kill()
        made = [limiter.reserve("k", 2) for _ in range(3)]
        assert all(each.decision.degraded for each in made)
        server.start()
        eventually(lambda: not limiter.peek("k").degraded)
        made[0].settle(9)
        made[1].settle(0)
        made[2].cancel()
        assert (limiter.peek("k", 0).degraded, left(limiter)) == (False, [7])
        store.close()


@pytest.mark.skipif("valkey" not in BINARIES, reason="there is no server here")
def test_a_give_back_that_is_lost_is_said(caplog, clock):
    """The server went away after the reservation was made: a line in the log, or an error with `on_error="raise"`."""
    with Server() as server:
        store = RedisStore(server.url, clock=clock, deadline=5.0)
        quiet = Limiter("10/minute", store=store).reserve("k", 5)
        loud = Limiter("10/minute", store=store, on_error="raise").reserve("k", 5)
        server.kill()
        with caplog.at_level(logging.WARNING, "headgate"):
            quiet.settle(3)
        assert "a refund was lost" in caplog.text
        with pytest.raises(StoreError, match="give back"):
            loud.cancel()
        store.close()
