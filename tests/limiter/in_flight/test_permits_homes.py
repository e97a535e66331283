"""Permits where their home fails, is far away, or is left by its caller: degraded, cancelled, forked, renewed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, StoreError, steps
from headgate.layout import UNIT_BITS
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.faults import PATIENT, calls
from tests.support.flight import flying_at, forks, held, in_child, left, one, renew, renewed
from tests.support.homes import EVERY_WAY, LATER, in_each_home, until
from tests.support.inside import renewal_of, topology_of

BOTH = "5/hour as rate; 2 in flight as now"


@contextmanager
def away(limiter: Any) -> Iterator[None]:
    """Its home cannot be reached."""
    store = limiter.store
    if isinstance(store, RedisStore):
        topology_of(store).origin.breaker.open = True
        yield
        topology_of(store).origin.breaker.open = False
    else:
        store._engine.leave()  # as a forked child that finds every number taken
        yield
        store.rejoin()


REMOTE = [way for way in EVERY_WAY if "memory" not in way]


@pytest.mark.parametrize("make", REMOTE, indirect=True)
def test_degraded_permits_are_counted_here_and_given_back_here(make):
    """While its home is away a limiter counts for itself; what it counted then ends there, and nowhere else."""
    limiter = make("2 in flight as now; 9/hour as rate", on_error="local")
    with away(limiter):
        permits = [limiter.permit("k") for _ in range(3)]
        assert [(bool(each), each.decision.degraded) for each in permits] == [(True, True), (True, True), (False, True)]
        assert permits[2].decision.unknown
        assert permits[0].release() and not permits[0].release()
        assert left(limiter) == [1, 7]
        whole = limiter.hit("k")
        assert whole.degraded and left(limiter) == [0, 6]
        limiter.refund(whole)
        assert left(limiter) == [1, 6]  # what a rate let pass meanwhile stays so
        part = limiter.take_up_to("k", 5)
        assert (part.granted, left(limiter)) == (1, [0, 5])
        limiter.release(part)
    assert left(limiter) == [2, 9]
    taken = limiter.permit("k")
    assert permits[1].release() and held(limiter) == 1
    with away(limiter):
        assert left(limiter) == [2, 5]
    assert (taken.release(), left(limiter)) == (True, [2, 8])


@pytest.mark.parametrize("make", REMOTE, indirect=True)
def test_what_is_not_counted_is_not_given_back(make):
    """With `allow` or `deny` nothing is in flight during an outage; with `raise` the caller gets the error."""
    generous, strict = make("1 in flight", on_error="allow"), make("1 in flight", on_error="deny")
    honest = make("1 in flight", on_error="raise")
    with away(generous), away(strict), away(honest):
        permits = [generous.permit("k", 5) for _ in range(3)]
        assert all(permits) and all(permit.decision.degraded and permit.release() for permit in permits)
        refused = strict.permit("k")
        assert (bool(refused), refused.release(), refused.decision.retry_after) == (False, False, 1.0)
        for ask in (honest.permit, honest.hit, honest.holders, honest.reset):
            with pytest.raises(StoreError):
                ask("k")
    assert [held(limiter) for limiter in (generous, strict, honest)] == [0, 0, 0]


@pytest.mark.parametrize("make", ["redis", "redis awaited"], indirect=True)
def test_a_permit_that_cannot_be_given_back_has_ended_all_the_same(make, caplog, clock):
    """It is not renewed any more, so its lease ends; it is told once, as an error or as a line in the log."""
    quiet, honest = make("3 in flight", clock=clock, on_error="local"), make("3 in flight", clock=clock)
    told = nullcontext(), pytest.raises(StoreError, match="could not give back the units")
    for limiter, error in zip((quiet, honest), told, strict=True):
        permit = limiter.permit("k")
        with away(limiter):
            with error:
                permit.release()
            assert (permit.outcome, permit.release()) == ("success", False)
        assert renewed(limiter) == []
    assert [record.levelno for record in caplog.records if "a refund was lost" in record.message] == [logging.WARNING]
    assert held(honest) == 2
    clock.advance(30)
    assert held(honest) == 0


@pytest.mark.parametrize("awaited", [False, True])
def test_a_permit_takes_one_round_trip_and_its_end_another(server, awaited):
    """A permit of several limits takes no more, with any arguments; an exit from the block is an end."""
    with flying_at(server, awaited) as make:
        limiter = make("5 in flight; 100/minute")
        asked = {
            "permit": lambda: limiter.permit("k").release(),
            "wait": lambda: limiter.permit("k", timeout=5).release(),
            "block": lambda: limiter.permit("k").__exit__(None, None, None),
            "hit": lambda: limiter.release(limiter.hit("k")),
            "acquire": lambda: limiter.release(limiter.acquire("k", 2)),
            "refund": lambda: limiter.refund(limiter.hit("k")),
        }
        for ask in asked.values():
            ask()  # the server has seen every script now
        for name, ask in asked.items():
            before = calls(server, "evalsha", "eval")
            ask()
            assert (name, calls(server, "evalsha", "eval") - before) == (name, 2)
        assert calls(server, "eval") <= 4
        refused = limiter.permit("k", 6)
        before = calls(server, "evalsha")
        assert not refused.release() and calls(server, "evalsha") == before


@awaited
async def test_what_ends_at_one_time_travels_together(server):
    """Fifty permits of one event loop are taken in one call and given back in another, more or less."""
    store = RedisStore(server.url, deadline=PATIENT)
    limiter = AsyncLimiter("50 in flight", store=store, on_error="raise")
    for most in (10, 5):  # the first time the server learns the scripts
        before, searched = calls(server, "evalsha", "eval"), calls(server, "zscore")
        permits = await asyncio.gather(*(one(limiter.permit("k")) for _ in range(50)))
        assert all(permits) and not await limiter.permit("k")
        assert calls(server, "zscore") - searched <= 100  # for a mark of their own: those of one instant are many
        marks = sorted(permit.decision.verdicts[0].mark for permit in permits)
        for _, same in groupby(marks, key=lambda mark: mark[0]):
            assert all(number >> UNIT_BITS == place for place, (_, number) in enumerate(same))
        assert all(await asyncio.gather(*(permit.release() for permit in permits)))
        assert calls(server, "evalsha", "eval") - before <= most
        assert (await limiter.peek("k", 0)).remaining == 50
    await store.aclose()


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_that_leaves_its_parents_block_frees_nothing(home):
    """A refund by the child frees nothing: the parent's permit ends with its block, and the child takes its own."""
    limiter = home.limiter("2 in flight", clock=ManualClock(LATER))
    with limiter.permit("k") as permit:
        free = 1 if home.kind != "memory" else 2  # a child has memory of its own, and nothing in flight in it

        def leave() -> tuple[object, ...]:
            before = limiter.peek("k", 0).remaining
            permit.__exit__(None, None, None)
            limiter.refund(permit.decision)
            after = limiter.peek("k", 0).remaining
            taken = limiter.permit("k", free)
            return before, after, bool(taken), sorted(holding.own for holding in limiter.holders("k"))

        whose = [False, True] if home.kind != "memory" else [True]
        assert in_child(leave) == repr((free, free, True, whose))
        expected = {"memory": 1, "shared": 1, "redis": 2}  # a dead child's lease has to end first
        assert held(limiter) == expected[home.kind]
    assert held(limiter) == expected[home.kind] - 1


def question(limiter: AsyncLimiter, ask: str, taken: Any) -> Coroutine[Any, Any, Any]:
    questions: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "hit": lambda: limiter.hit("k"),
        "take_up_to": lambda: limiter.take_up_to("k", 2),
        "decide": lambda: limiter.decide(Call(limiter.limits[0], "k")),
        "permit in a block": lambda: limiter.permit("k").__aenter__(),
        "permit that waits": lambda: limiter.permit("k", timeout=None).__aenter__(),
        "permit": lambda: one(limiter.permit("k", timeout=1)),
        "refund": lambda: limiter.refund(taken),
        "release": lambda: limiter.release(taken),
    }
    return questions[ask]()


@pytest.mark.parametrize(
    "ask",
    [
        "hit",
        "take_up_to",
        "decide",
        "permit in a block",
        "permit that waits",
        "permit",
        "refund",
        "release",
    ],
)
@in_each_home
async def test_who_is_cancelled_while_it_asks_leaves_nothing_in_flight(store, ask):
    """Wherever the question or its answer is then; and a give-back is seen through."""
    limiter = AsyncLimiter("2 in flight", store=store, on_error="raise")
    gives = ask in ("refund", "release")
    for turns in range(gives, 12):  # a give-back that never began is nobody's
        taken = await limiter.hit("k") if gives else None
        task = asyncio.create_task(question(limiter, ask, taken))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and not gives:  # it was too quick
            await limiter.release(getattr(task.result(), "decision", task.result()))
        await until(lambda: not steps.unfinished)
        assert (await limiter.peek("k", 0)).remaining == 2, turns


def test_a_short_lease_does_not_shorten_the_life_of_longer_ones(server):
    """The server forgets a key when its last lease has ended: not with the latest charge, nor the latest renewal."""
    with flying_at(server, awaited=False) as make:
        limiter = make("3 in flight ttl 10m")
        limiter.permit("k")
        short = limiter.hit("k", limit="3 in flight ttl 1s")
        (key,) = server.client().keys("*")
        assert server.client().pttl(key) > 500_000
        renew(limiter, 1)
        assert server.client().pttl(key) > 500_000
        limiter.release(short)
        assert held(limiter) == 1


def test_renewing_remembers_limits_and_not_limiters(server):
    """However many limiters come and go on a store, what is kept for renewals does not grow."""
    with flying_at(server, awaited=False) as make:
        for _ in range(20):
            limiter = make("1 in flight")
            with limiter.permit("k"):
                renew(limiter)
        assert (len(renewal_of(limiter.store).plans), renewed(limiter)) == (1, [])


def test_heavy_permits_are_renewed_a_few_at_a_time(server):
    """A server works on every unit of them, and on nothing else meanwhile; one that is too heavy goes alone."""
    with flying_at(server, awaited=False) as make:
        limiter = make("9999 in flight")
        permits = [limiter.permit("k", units) for units in (400, 400, 400, 2500, 1000, 1, 999)]
        renew(limiter)  # the server knows the script now
        before = calls(server, "evalsha")
        renew(limiter)
        assert calls(server, "evalsha") - before == 5
        assert renewed(limiter) == ["k"] * 7 and all(permit.release() for permit in permits)


def test_a_permit_that_could_not_be_renewed_is_not_held(server, monkeypatch):
    """No thread can be started: an error, and the lease ends. The next permit tries again, and renews its own only."""
    with flying_at(server, awaited=False) as make:
        limiter = make("3 in flight ttl 10m")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse_to_start)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                limiter.permit("k")
        assert renewed(limiter) == [] and renewal_of(limiter.store).thread is None
        permit = limiter.permit("k")
        thread = renewal_of(limiter.store).thread
        assert renewed(limiter) == ["k"] and thread is not None and thread.is_alive()
        permit.release()


def refuse_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
