"""The small API: decisions, guards, bad input, and its async twin."""

from __future__ import annotations

import inspect
import math

import pytest

from headgate import (
    AsyncLimiter,
    Call,
    HeadgateError,
    InvalidCall,
    InvalidLimit,
    Limit,
    Limiter,
    MemoryStore,
    RateLimited,
)
from headgate.testing import ManualClock
from tests.support.awaiting import awaited

LATER = 1_000_000_000.0


def limiter(text: str = "10/minute") -> Limiter:
    return Limiter(text, clock=ManualClock(LATER))


def test_a_decision_says_everything_at_once():
    """One question, one full answer: allowed, limit, remaining, retry, reset, binding, truth."""
    decision = limiter("10/minute burst 4").hit("user:42", 3)
    assert (bool(decision), decision.allowed, decision.never, decision.degraded) == (True, True, False, False)
    assert (decision.limit, decision.remaining, decision.granted) == (4, 1, 3)
    assert (decision.retry_after, decision.reset_after) == (0.0, 18.0)
    assert decision.binding == Limit(10, "minute", burst=4)
    assert decision.calls == (Call("10/minute burst 4", "user:42", 3),)
    assert repr(decision) == "<Decision allowed, 1 of 4 left, by 10/minute burst 4>"


def test_a_no_is_a_value():
    """Refused: false, with the wait; never: false, with infinity."""
    limit = limiter()
    limit.hit("k", 10)
    refused, never = limit.hit("k"), limit.hit("k", 11)
    assert (bool(refused), refused.granted, refused.retry_after, refused.never) == (False, 0, 6.0, False)
    assert (bool(never), never.granted, never.retry_after, never.never) == (False, 0, math.inf, True)
    assert repr(refused) == "<Decision refused, retry after 6 s, by 10/minute>"
    assert repr(never) == "<Decision refused for ever: the cost is above 10, by 10/minute>"


def test_binding_on_a_yes_is_the_smallest_part_left():
    """Of 10/s and 1000/hour after one hit, nine tenths are less than 999 thousandths; ties go to the first."""
    both = Limiter("10/second; 1000/hour", clock=ManualClock(LATER)).hit("k")
    assert (str(both.binding), both.limit, both.remaining) == ("10/second", 10, 9)
    assert both.reset_after == 3.6
    tied = Limiter("10/second as first; 10/hour as second", clock=ManualClock(LATER)).hit("k")
    assert (tied.binding.name, tied.reset_after) == ("first", 360.0)


def test_binding_on_a_no_is_the_longest_wait():
    """The limit that keeps the caller waiting longest is named; never is longer than any wait."""
    limit = Limiter("2/second as fast; 2/hour as slow; 5/day by fixed-window as large", clock=ManualClock(LATER))
    limit.hit("k", 2)
    assert limit.hit("k").binding.name == "slow"
    assert limit.hit("k").retry_after == 1800.0
    assert (limit.hit("k", 3).binding.name, limit.hit("k", 3).retry_after) == ("fast", math.inf)


@pytest.mark.parametrize("cost", [-1, True, False, 1.0, 1.5, math.nan, math.inf, "1", None, 2**53 + 1, [1], 1j])
def test_bad_costs_are_refused_and_touch_nothing(cost):
    """A cost is a whole number from 0 to 2**53; the error shows what was given."""
    limit = limiter()
    limit.hit("k", 3)
    for ask in (limit.hit, limit.peek, limit.take_up_to):
        with pytest.raises(InvalidCall, match="whole number from 0 to 2"):
            ask("k", cost)
    with pytest.raises(InvalidCall):
        Call("10/minute", "k", cost)
    assert limit.peek("k", 0).remaining == 7


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "must not be empty"),
        ("x" * 5000, "at most 4096 bytes"),
        ("é" * 2049, "at most 4096 bytes"),
        (b"k", "must be a str; got b'k' of type bytes"),
        (42, "must be a str"),
        (None, "must be a str"),
    ],
)
def test_bad_keys_are_refused_with_what_was_given(key, says):
    """In every method that takes a key, and never with more of the key than a line holds."""
    limit = limiter()
    for ask in (limit.hit, limit.peek, lambda key: limit.take_up_to(key, 1), limit.reset, lambda key: Call("1/s", key)):
        with pytest.raises(InvalidCall, match=says) as error:
            ask(key)
        assert len(str(error.value)) < 250


def test_costs_up_to_the_bound_are_asked():
    """2**53 is a cost; it just never fits. Integers of other types are integers."""

    class Five:
        def __index__(self) -> int:
            return 5

    assert limiter().hit("k", 2**53).never
    assert limiter().hit("k", Five()).granted == 5


def test_costs_by_name_must_name_every_limit():
    """A name too many, a name missing or an unnamed limit is an error that lists the names."""
    limit = limiter("60/minute as rpm; 90000/minute as tpm")
    for wrong in ({"rpm": 1}, {"rpm": 1, "tpm": 2, "x": 3}, {}, {"rpm": 1, "tpmm": 1}):
        with pytest.raises(InvalidCall, match="the limits are rpm, tpm"):
            limit.hit("k", wrong)
    with pytest.raises(InvalidCall, match="whole number"):
        limit.hit("k", {"rpm": 1, "tpm": -1})
    with pytest.raises(InvalidCall, match="unnamed"):
        limiter("60/minute").hit("k", {"": 1})
    assert [verdict.remaining for verdict in limit.peek("k", 0).verdicts] == [60, 90_000]


def test_refunds_by_name():
    """Part of one limit is given back, the other stays charged."""
    limit = limiter("60/minute as rpm; 90000/minute as tpm")
    spent = limit.hit("k", {"rpm": 1, "tpm": 500})
    limit.refund(spent, {"rpm": 0, "tpm": 69})
    assert [verdict.remaining for verdict in limit.peek("k", 0).verdicts] == [59, 89_569]
    limit.refund(spent)
    assert [verdict.remaining for verdict in limit.peek("k", 0).verdicts] == [60, 90_000]


def test_a_peek_has_nothing_to_give_back():
    """Refunding what was never charged gives nothing."""
    for text, left in (("10/minute", [7]), ("10/minute; 20/hour", [7, 17])):
        limit = limiter(text)
        limit.hit("k", 3)
        limit.refund(limit.peek("k", 3))
        assert [verdict.remaining for verdict in limit.peek("k", 0).verdicts] == left


def test_long_waits_are_written_in_seconds():
    """A month is 2592000 s, not 2.592e+06."""
    limit = limiter("1/30 days")
    limit.hit("k")
    assert "retry after 2592000 s" in repr(limit.hit("k"))
    assert "retry after 2592000 s" in str(RateLimited(limit.hit("k")))


def test_a_decision_kept_is_never_written_over():
    """Decisions may be collected: each keeps its own answer, whatever is asked afterwards."""
    limit = limiter()
    kept = [limit.hit("k") for _ in range(12)]
    alone = limit.peek("other")
    limit.hit("other", 10)
    assert [decision.remaining for decision in kept] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]
    assert (alone.remaining, alone.calls[0].key) == (10, "other")


def test_refunds_that_make_no_sense():
    """A key needs to say how much; anything else is neither key nor decision."""
    with pytest.raises(InvalidCall, match="refund of a key needs a number of units"):
        limiter().refund("k")
    with pytest.raises(InvalidCall, match="takes a Decision or a key"):
        limiter().refund(42)


def test_decide_takes_calls():
    """From 1 to 64 Calls, nothing else; a limit given as words is read."""
    limit = limiter()
    assert limit.decide(Call("5/second", "k", 5)).granted == 5
    assert limit.decide(*(Call(f"5/second as n{n}", "k") for n in range(64)))
    for wrong in ((), ("k",), tuple(Call(f"5/second as n{n}", "k") for n in range(65))):
        with pytest.raises(InvalidCall):
            limit.decide(*wrong)


def test_limits_that_would_share_a_state_need_names():
    """10/minute and 100/minute are the same budget read twice; as two budgets they need names."""
    with pytest.raises(InvalidLimit, match="would share one state.*as NAME"):
        Limiter("10/minute", "100/minute")
    Limiter("10/minute as a", "100/minute as b", ["5/second", Limit(7, "hour")])
    with pytest.raises(InvalidLimit, match="from 1 to 64"):
        Limiter()


def test_limited_and_permit_raise_what_was_decided():
    """A decorator has a key from the arguments, a permit is a context manager; what was spent stays spent."""
    limit = limiter("2/minute")

    @limit.limited(lambda user, **_: f"user:{user}")
    def serve(user, *, greeting="hello"):
        """Greets."""
        return f"{greeting} {user}"

    assert (serve("ann"), serve("ann", greeting="hi"), serve.__doc__) == ("hello ann", "hi ann", "Greets.")
    with pytest.raises(RateLimited) as refused:
        serve("ann")
    assert refused.value.retry_after == refused.value.decision.retry_after == 30.0
    assert str(refused.value) == "rate limited by 2/minute: retry after 30 s"
    with limit.permit("user:bob", cost=2) as permit:
        assert permit.decision.remaining == 0
    with pytest.raises(RateLimited), limit.permit("user:bob"):
        pytest.fail("the body must not run")
    with pytest.raises(RateLimited, match="the cost can never fit"), limit.permit("user:eve", cost=3):
        pytest.fail("the body must not run")
    with pytest.raises(InvalidCall, match=r"around a block, write `with limiter.permit\(key\):`"), limit.limited("k"):
        pytest.fail("the body must not run")


def test_limited_of_the_wrong_colour_is_an_error_at_decoration():
    """`async def` under a Limiter would never be awaited; a plain def under an AsyncLimiter could not be."""
    with pytest.raises(InvalidCall, match="AsyncLimiter"):

        @limiter().limited("k")
        async def wrong():
            pytest.fail("never called")

    with pytest.raises(InvalidCall, match="async generator"):

        @AsyncLimiter("1/s").limited("k")
        async def neither():
            yield pytest.fail("never called")

    with pytest.raises(InvalidCall, match="needs a key before"):

        @limiter().limited
        def keyless():
            pytest.fail("never called")

        keyless("k")

    with pytest.raises(InvalidCall, match="not an async def"):

        @AsyncLimiter("1/s").limited("k")
        def also_wrong():
            pytest.fail("never called")


def test_stores_are_opened_by_url():
    """memory:// with or without bounds; what cannot be read is shown."""
    assert Limiter("1/s", store="memory://").hit("k")
    assert Limiter("1/s", store="memory://?max_keys=10&max_bytes=100000").store.max_keys == 10
    for wrong in (
        "memory://host",
        "memory://?max_key=1",
        "memory://?max_keys=x",
        "memory:///path",
        "nowhere://x",
        "x",
        5,
    ):
        with pytest.raises(InvalidCall):
            Limiter("1/s", store=wrong)
    with pytest.raises(InvalidCall, match="its own clock"):
        Limiter("1/s", store=MemoryStore(), clock=ManualClock())
    for namespace in ("", "a\0b", None):
        with pytest.raises(InvalidCall, match="namespace"):
            Limiter("1/s", namespace=namespace)
    with pytest.raises(InvalidCall, match="on_error must be one of local, allow, deny, raise"):
        Limiter("1/s", on_error="panic")


def test_a_broken_clock_is_an_error():
    """An instant that is no instant corrupts no state."""

    class Broken:
        def now_us(self):
            return self.us

    clock = Broken()
    clock.us = 5_000_000
    limit = Limiter("1/day", clock=clock)
    limit.hit("k")
    for wrong in (-1, 1.5, None, 2**53, True):
        clock.us = wrong
        with pytest.raises(HeadgateError, match="whole microseconds since the epoch"):
            limit.hit("k")
    clock.us = 6_000_000
    assert not limit.hit("k")


@awaited
async def test_async_speaks_the_same_words():
    """Every method of Limiter, awaited; nothing is sometimes awaitable."""
    for name in ("hit", "peek", "take_up_to", "acquire", "reserve", "decide", "refund", "reset", "aclose"):
        assert inspect.iscoroutinefunction(getattr(AsyncLimiter, name))
    limit = AsyncLimiter("10/minute", clock=ManualClock(LATER))
    spent = await limit.hit("k", 4)
    assert (await limit.peek("k", 0)).remaining == 6
    await limit.refund(spent)
    assert (await limit.take_up_to("k", 99)).granted == 10
    assert not await limit.decide(Call("10/minute", "k"))
    await limit.reset("k")
    assert (await limit.hit("k", 5, limit="5/minute")).remaining == 0
    async with limit.permit("other") as permit:
        assert permit.decision.remaining == 9

    @limit.limited(lambda user: user)
    async def serve(user):
        return f"hello {user}"

    assert await serve("ann") == "hello ann"
    assert (await limit.peek("ann", 0)).remaining == 9
    with pytest.raises(RateLimited):
        async with limit.permit("ann", cost=10):
            pytest.fail("the body must not run")


def test_the_signatures_of_the_twins_agree():
    """The engine accepts the signature that an editor shows for Limiter: every argument by its place or name."""
    limit = limiter()
    assert limit.hit(key="k", cost=1, limit=None)
    assert limit.peek(key="k", cost=1, limit="20/minute")
    assert limit.take_up_to(key="k", n=1, limit=None)
    for wrong in (lambda: limit.hit(), lambda: limit.hit("k", 1, "20/minute"), lambda: limit.hit("k", price=1)):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("verb", ["hit", "peek", "take_up_to", "acquire", "permit", "release"])
def test_verbs_tell_their_signature(verb):
    """`help(limiter.hit)` and `inspect` show the parameters and defaults of the class, on the native engine too."""

    def told(function: object) -> list[tuple[str, object, object]]:
        parameters = inspect.signature(function).parameters.values()
        return [(each.name, each.kind, each.default) for each in parameters if each.name != "self"]

    assert told(getattr(limiter(), verb)) == told(getattr(Limiter, verb))
