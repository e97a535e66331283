"""`limiter.counts()`: the answers that callers got, counted once each, whatever the store and the path."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AsyncLimiter, Call, Counts, Limit, Limiter, MemoryStore
from headgate.engine import NATIVE
from headgate.stores.shared import SharedStore
from headgate.testing import ManualClock, ReferenceStore, disabled, frozen
from tests.support import side_by_side
from tests.support.flight import forks, in_child

needs_shared = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")


@pytest.fixture(params=["memory", "reference", pytest.param("shared", marks=needs_shared)])
def store(request, tmp_path):
    """A store of each kind that answers in this process."""
    clock = ManualClock(1_000_000_020.0)
    if request.param == "shared":
        return SharedStore(str(tmp_path / "store"), clock=clock)
    return (MemoryStore if request.param == "memory" else ReferenceStore)(clock=clock)


def test_each_answer_to_a_caller_counts_once(store):
    """Hits, hits at a plan and `take_up_to` count by their result; peeks, refunds and resets count nothing."""
    limiter = Limiter("3/minute", store=store)
    assert limiter.counts() == Counts(0, 0, 0, 0)
    spent = limiter.hit("k")
    limiter.hit("k", cost=2)
    limiter.hit("k")
    limiter.hit("k", cost=4)
    limiter.hit("k", limit="5/minute")
    limiter.take_up_to("other", 9)
    limiter.take_up_to("other", 9)
    limiter.decide(Call(Limit.parse("3/minute"), "third"))
    limiter.peek("k")
    limiter.refund(spent)
    limiter.reset("k")
    assert limiter.counts() == Counts(allowed=4, refused=3, never=1, degraded=0)


@pytest.mark.parametrize("limits", ["2 in flight", "9/minute; 2 in flight"])
def test_a_caller_is_in_flight_until_all_of_its_units_are_released(store, limits):
    """`in_flight` counts callers, not units, and each of them once; a peek and a refused caller are none."""
    limiter = Limiter(limits, store=store)
    seen = [limiter.in_flight]
    held = limiter.hit("k", 2)
    assert not limiter.hit("k") and not limiter.peek("k")
    with limiter.permit("other"):
        seen.append(limiter.in_flight)
    limiter.refund(held, 1)
    seen.append(limiter.in_flight)
    for _ in range(2):
        limiter.release(held)
        seen.append(limiter.in_flight)
    assert seen == [0, 2, 1, 0, 0]


def test_several_limits_with_costs_by_name_count_once(store):
    """A decision over two limits is one decision."""
    limiter = Limiter("3/minute as a; 9/minute as b", store=store)
    limiter.hit("k", cost={"a": 3, "b": 1})
    limiter.hit("k", cost={"a": 1, "b": 1})
    limiter.hit("k", cost={"a": 4, "b": 1})
    assert limiter.counts() == Counts(1, 1, 1, 0)


def test_a_caller_that_waits_counts_once(store):
    """`acquire`, `permit` and `reserve` count the last answer, whatever was asked on the way to it."""
    limiter = Limiter("2/minute", store=store)
    for _ in range(3):
        assert limiter.acquire("k")  # the clock moves by itself while a thread sleeps
    assert not limiter.acquire("k", timeout=0)
    assert not limiter.permit("k")
    assert not limiter.permit("k", timeout=1)
    assert limiter.reserve("k")
    assert not limiter.reserve("k", max_wait=0)
    assert limiter.counts() == Counts(allowed=4, refused=4, never=0, degraded=0)


def test_event_loops_count_the_same(store):
    """An `AsyncLimiter` counts what a `Limiter` counts."""

    async def ask() -> Counts:
        limiter = AsyncLimiter("2/minute", store=store)
        await limiter.hit("k")
        await limiter.hit("k", limit="2/minute")
        await limiter.hit("k")
        await limiter.hit("k", 3)
        await limiter.peek("k")
        await limiter.take_up_to("new", 1)
        await limiter.decide(Call(Limit.parse("2/minute"), "new"))
        await limiter.acquire("newer")
        await limiter.acquire("k", timeout=0)
        async with limiter.permit("newest"):
            pass
        await limiter.reserve("newest", max_wait=0)
        await limiter.reserve("newest", max_wait=0)
        return limiter.counts()

    assert asyncio.run(ask()) == Counts(allowed=7, refused=3, never=1, degraded=0)


def test_a_cancelled_caller_has_no_answer_to_count(store):
    """A task that is cancelled while it waits counts nothing."""

    async def ask() -> Counts:
        limiter = AsyncLimiter("1 in flight", store=store)
        async with limiter.permit("k"):
            waiting = asyncio.create_task(limiter.acquire("k"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return limiter.counts()

    assert asyncio.run(ask()) == Counts(1, 0, 0, 0)


def test_limiters_on_one_store_count_each_for_itself(store):
    """Two limiters share the states of a key, and not their counts."""
    one, other = Limiter("1/minute", store=store), Limiter("1/minute", store=store)
    assert one.hit("k")
    assert not other.hit("k")
    assert (one.counts(), other.counts()) == (Counts(1, 0, 0, 0), Counts(0, 1, 0, 0))


def test_sixteen_threads_lose_no_count(store):
    """16 threads with plans, refusals and costs that never fit: the counts are what was asked."""
    limiter = Limiter("1000000/hour", store=store)
    rounds = 300 if isinstance(store, MemoryStore) and NATIVE else 30

    def ask() -> None:
        for _ in range(rounds):
            limiter.hit("k")
            limiter.hit("k", limit="2000000/hour")
            limiter.hit("k", cost=3_000_000)
            limiter.decide(Call(Limit.parse("1000000/hour"), "k"))

    with side_by_side([ask] * 16):
        pass
    assert limiter.counts() == Counts(allowed=48 * rounds, refused=0, never=16 * rounds, degraded=0)


def test_counts_survive_another_store():
    """`frozen` and `disabled` replace the store of a limiter, and its counts go on."""
    limiter = Limiter("1/minute")
    limiter.hit("k")
    with frozen(limiter):
        limiter.hit("k")
    with disabled(limiter):
        limiter.hit("k")
    limiter.hit("k")
    assert limiter.counts() == Counts(3, 1, 0, 0)


@pytest.mark.parametrize(
    ("on_error", "counts"), [("allow", (2, 0, 0, 2)), ("deny", (0, 2, 0, 2)), ("local", (1, 1, 0, 2))]
)
def test_answers_without_the_store_count_as_degraded_too(on_error, counts):
    """While a server is away, each answer counts by its result, and as degraded."""
    limiter = Limiter("1/minute", store="redis://127.0.0.1:1?connect_timeout=0.01", on_error=on_error)
    limiter.hit("k")
    limiter.hit("k")
    assert limiter.counts() == counts
    limiter.close()


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_counts_from_zero(store):
    """The parent keeps its counts: their sum over processes stays the number of decisions."""
    limiter = Limiter("5/minute", store=store)
    limiter.hit("k")

    def child() -> tuple[int, ...]:
        limiter.hit("k")
        return tuple(limiter.counts())

    assert in_child(child) == "(1, 0, 0, 0)"
    assert limiter.counts() == Counts(1, 0, 0, 0)
