"""Limits: what may be said, what is kept of it, and what a mistake is told."""

from __future__ import annotations

import pickle
import re
from datetime import timedelta
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import InvalidLimit, Limit, LimitWarning

SECOND, MINUTE, HOUR, DAY, WEEK = 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6, 604_800 * 10**6


@pytest.mark.parametrize(
    ("text", "amount", "period_us"),
    [
        ("10/minute", 10, MINUTE),
        ("10 / minute", 10, MINUTE),
        ("5 per 2 hours", 5, 2 * HOUR),
        ("5 PER 2 Hours", 5, 2 * HOUR),
        ("200/500ms", 200, SECOND // 2),
        ("200/500 milliseconds", 200, SECOND // 2),
        ("1/s", 1, SECOND),
        ("1/sec", 1, SECOND),
        ("1/min", 1, MINUTE),
        ("3/90 seconds", 3, 90 * SECOND),
        ("1/h", 1, HOUR),
        ("1/hr", 1, HOUR),
        ("1/d", 1, DAY),
        ("7 per 2 days", 7, 2 * DAY),
        ("1/w", 1, WEEK),
        ("100_000 per 4 weeks", 100_000, 4 * WEEK),
        ("  10/m  ", 10, MINUTE),
    ],
)
def test_rates_read_as_people_write_them(text, amount, period_us):
    """An amount, `/` or `per`, and a time with or without a count."""
    limit = Limit.parse(text)
    assert (limit.amount, limit.period_us, limit.burst) == (amount, period_us, amount)
    assert (limit.algorithm, limit.block_us, limit.name) == ("token-bucket", 0, "")


def test_clauses_come_in_any_order():
    """burst, by, block and as say the rest."""
    one = Limit.parse("100/hour burst 20 by gcra block 10m as api.v1")
    two = Limit.parse("100/hour as api.v1 block 10 minutes by GCRA BURST 20")
    assert one == two == Limit(100, "hour", burst=20, algorithm="gcra", block="10m", name="api.v1")
    assert (one.burst, one.algorithm, one.block, one.name, one.period) == (20, "gcra", 600.0, "api.v1", 3600.0)


def test_several_limits_stand_in_one_string():
    """Limits are separated by semicolons; a trailing one is forgiven."""
    assert Limit.parse_all("10/s; 100/m;") == (Limit(10, "s"), Limit(100, "m"))
    with pytest.raises(InvalidLimit, match="2 limits where one is expected"):
        Limit.parse("10/s; 100/m")


limits = st.builds(
    Limit,
    st.integers(1, 8192),
    st.integers(1, 10**9).map(lambda ms: timedelta(milliseconds=ms)),
    algorithm=st.sampled_from(
        ["token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-window/60", "sliding-log"]
    ),
    block=st.sampled_from([0, "1s", "90m", "2 weeks", 0.001, "1m, 10m, 1d", "1s, 2s within 3 weeks"]),
    name=st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", fullmatch=True) | st.just(""),
)


flights = st.builds(
    Limit,
    st.integers(1, 100_000),
    st.none() | st.integers(100, 10**9).map(lambda ms: timedelta(milliseconds=ms)),
    algorithm=st.just("in-flight"),
    name=st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", fullmatch=True) | st.just(""),
)


@given(limits | flights, st.none() | st.integers(1, 200))
def test_str_reads_back_as_the_same_limit(limit, burst):
    """`str` and `parse` are inverse, and so are pickling and unpickling."""
    if burst and limit.step.KIND == "bucket":
        limit = Limit(
            limit.amount,
            limit.period,
            burst=burst,
            algorithm=limit.algorithm,
            block=limit.written_block if limit.block else 0,
            name=limit.name,
        )
    assert Limit.parse(str(limit)) == limit == pickle.loads(pickle.dumps(limit))
    assert hash(Limit.parse(str(limit))) == hash(limit)
    assert eval(repr(limit), {"Limit": Limit.parse}) == limit


def test_times_may_be_seconds_or_timedeltas():
    """A period is words, seconds or a timedelta."""
    assert Limit(1, 0.5) == Limit(1, "500ms") == Limit(1, timedelta(milliseconds=500))
    assert Limit(5, 90) == Limit(5, "90 seconds")


def test_a_block_that_grows():
    """Times are separated by commas, and `within` is the memory; without it, the memory is the longest time."""
    limit = Limit.parse("5/minute block 1M,10m ,  1 day WITHIN 1w as login")
    assert str(limit) == "5/minute block minute, 10 minutes, day within week as login"
    assert limit == Limit(5, "minute", block="1m, 10m, 1d within 1w", name="login") == Limit.parse(str(limit))
    assert (limit.block, limit.growth[:3], limit.identity) == (
        60.0, (7 * 86_400_000_000, 60_000_000, 600_000_000), "token-bucket minute growing block as login",
    )  # fmt: skip
    assert Limit.parse("5/minute block 1m, 10m").growth[0] == 600_000_000
    assert limit.replace(amount=7).growth == limit.growth
    assert pickle.loads(pickle.dumps(limit)) == limit
    assert (
        Limit.parse("5/minute block 1m, 10m")
        != Limit.parse("5/minute block 1m, 11m")
        != Limit.parse("5/minute block 1m")
    )


def test_a_limit_is_frozen():
    """Nothing of a limit changes after it was made."""
    limit = Limit(1, "s")
    with pytest.raises(AttributeError, match="cannot be changed"):
        limit.amount = 2
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del limit.amount


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the limit '' is empty"),
        (" ; ", "the limit ' ; ' is empty"),
        ("nonsense", "cannot read the limit 'nonsense'; write for instance 10/minute"),
        ("10", "cannot read the limit"),
        ("-1/minute", "cannot read the limit"),
        ("1.5/minute", "cannot read the limit"),
        ("10/1.5 minutes", "cannot read"),
        ("10/minut", "did you mean minute?"),
        ("10/parsec", "use ms, second, minute, hour, day or week"),
        ("0/minute burst 3", "an amount of 0 lets no request pass, so it has no burst"),
        ("5/minute burst 0", "write an amount of 0, as in 0/minute"),
        ("5/minute by gcra scattered", "unknown algorithm 'gcra scattered'"),
        ("5/month by fixed-window scattered", "leave fixed-window scattered out"),
        ("10/0s", "whole number of ms, from 1 ms"),
        ("10/466 weeks", "from 1 ms to 465 weeks"),
        ("10 per 2 years", "one day, week, month or year.*such as 30 days or 365 days"),
        ("10/quarter", "one day, week, month or year"),
        ("10/minute block 1 month", "months and years have no fixed length"),
        ("10/minute block 1m, 1m", "from 2 to 7 times, each longer than the one before"),
        ("10/minute block 1m, 2m, 3m, 4m, 5m, 6m, 7m, 8m", "from 2 to 7 times"),
        ("10/minute block 1m within 1d", "from 2 to 7 times"),
        ("10/minute block 1m, 10m within", "cannot read 'within'"),
        ("10/minute block 1m, 10m within 1 month", "months and years have no fixed length"),
        ("10/minute block 1m, 100/hour", "cannot read ', 100/hour'.*limits are separated by ;"),
        ("10/minute burts 3", "did you mean burst?"),
        ("10/minute burst", "after the rate there may be: burst N"),
        ("10/minute burst 3 burst 4", "'burst' appears twice"),
        ("10/minute, 5/s", "cannot read ', 5/s'.*limits are separated by ;"),
        ("10/minute by tokenbucket", "unknown algorithm 'tokenbucket'; did you mean token-bucket?"),
        ("10/minute by sliding-window/0", "number of slots must be a whole number from 1"),
        ("10/minute by sliding-window/x", "number of slots must be a whole number from 1"),
        ("10/minute by sliding-window/10001", "at most 10000"),
        ("10/1ms by sliding-window/5000", "slots do not fit 1000 us; the most is 1000"),
        ("10/minute by gcra/6", "only sliding-window is divided"),
        ("10/minute as 1st", "cannot name a limit; a name begins with a letter"),
        ("10/minute as né", "cannot name a limit"),
        ("10/minute burst 5 by fixed-window", "its burst is 10"),
        ("10/minute burst 5 by sliding-log", "its burst is 10"),
        ("1000001/day by sliding-log", "at most 1000000"),
        ("10/second burst 9007199254740991", "the largest is 2814749767"),
        ("99999999999999999/second", "too large; at most 16 digits"),
        ("1000000000000000/465 weeks by fixed-window", "does not fit a window; the largest is"),
        ("999999999/minute", "too fine a fraction to keep exactly; the nearest is 99"),
    ],
)
def test_mistakes_are_shown_with_what_is_accepted(text, says):
    """The message shows the input and what would do."""
    with pytest.raises(InvalidLimit, match=says):
        Limit.parse_all(text)


def test_what_is_proposed_is_accepted():
    """The nearest exact amount that an error proposes makes a limit, and an exact one."""
    for amount, period in ((999_999_999, "minute"), (123_456_789, "s"), (10**13 + 1, "day")):
        with pytest.raises(InvalidLimit, match="the nearest is") as error:
            Limit(amount, period, burst=1)
        near = int(str(error.value).rpartition(" ")[2])
        assert 0 <= amount - near < amount / 4000
        assert Limit(near, period, burst=1).exact


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((True, "s"), "amount of a limit must be a whole number"),
        ((1.0, "s"), "amount of a limit must be a whole number"),
        ((2**53, "s"), "amount of a limit must be a whole number"),
        ((1, 0), "the period must be a time"),
        ((1, -1), "the period must be a time"),
        ((1, float("nan")), "the period must be a time"),
        ((1, float("inf")), "the period must be a time"),
        ((1, True), "the period must be a time"),
        ((1, 0.0015), "whole number of ms"),
        ((1, timedelta(microseconds=1)), "whole number of ms"),
    ],
)
def test_values_are_checked_like_words(arguments, says):
    """`Limit(...)` refuses what the grammar refuses."""
    with pytest.raises(InvalidLimit, match=says):
        Limit(*arguments)


@pytest.mark.parametrize("given", [None, 5, b"10/minute", 1.5, object()])
def test_what_is_no_limit_is_refused(given):
    """A limit is a Limit, words, or several of either."""
    from headgate import Limiter

    with pytest.raises(InvalidLimit, match="a limit must be"):
        Limiter(given)


@given(st.integers(1, 10**9), st.sampled_from(["1ms", "1s", "1m", "1h", "1d", "1w", "70ms", "90s"]))
def test_the_bucket_is_exact_up_to_8192ths(amount, per):
    """A rate is exact when its reduced numerator is at most 8192, and says so when it is not."""
    try:
        limit = Limit(amount, per, burst=1)
    except InvalidLimit:
        return
    assert limit.exact == (amount // gcd(amount, limit.period_us) <= 8192)


@pytest.mark.parametrize("text", ["1000000000/day", "1000000/s", "10/s", "119/minute", "8192/s", "123457/day burst 9"])
def test_round_numbers_are_exact(text):
    """Every round number is, a billion a day and a million a second included."""
    assert Limit.parse(text).exact == (text != "123457/day burst 9")


def test_a_coarse_estimate_is_warned_of():
    """Below ten, two counters estimate too coarsely; the warning names what serves better."""
    from headgate import Limiter

    says = "sliding-window/60 or sliding-log serve small limits better"
    for make in (
        lambda: Limit(9, "minute", algorithm="sliding-window"),
        lambda: Limit.parse("8/minute by sliding-window"),
        lambda: Limiter("7/minute by sliding-window"),
    ):
        with pytest.warns(LimitWarning, match=says) as caught:
            make()
        assert [warning.filename for warning in caught] == [__file__]


def test_one_slot_is_the_plain_sliding_window():
    """`sliding-window/1` is another spelling."""
    assert Limit(20, "m", algorithm="sliding-window/1") == Limit(20, "m", algorithm="sliding-window")


@pytest.mark.parametrize(
    ("text", "amount", "ttl", "name"),
    [
        ("20 in flight", 20, 30, ""),
        ("20 in-flight", 20, 30, ""),
        ("1_000 IN FLIGHT", 1000, 30, ""),
        ("20 in flight per user", 20, 30, "user"),
        ("20  in \t flight", 20, 30, ""),
        ("20 in flight as api.v1", 20, 30, "api.v1"),
        ("20 in flight ttl 10s", 20, 10, ""),
        ("  20 in flight PER user TTL 2 minutes ", 20, 120, "user"),
        ("20 in flight ttl 100ms per user", 20, 0.1, "user"),
        ("100000 in flight ttl 100 weeks", 100_000, 60_480_000, ""),
    ],
)
def test_how_many_at_once_reads_as_people_write_it(text, amount, ttl, name):
    """An amount, `in flight`, and in any order how long a server waits for a sign of life, and a name."""
    limit = Limit.parse(text)
    assert (limit.amount, limit.burst, limit.period, limit.name) == (amount, amount, ttl, name)
    assert (limit.in_flight, limit.algorithm, limit.block_us) == (True, "in-flight", 0)
    assert not Limit.parse("20/second").in_flight


def test_rates_and_flights_stand_in_one_string():
    """A string may list rates and limits of what is in flight, in any order."""
    assert Limit.parse_all("100/minute; 20 in flight per user; 5/s") == (
        Limit(100, "minute"), Limit(20, algorithm="in-flight", name="user"), Limit(5, "s"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2 in flight burst 3", "after `in flight` there may be"),
        ("100001 in flight", "too many permits for one key; at most 100000"),
        ("in flight", "cannot read the limit"),
        ("-1 in flight", "cannot read the limit"),
        ("20 in flightless", "cannot read the limit"),
        ("20 inflight", "cannot read the limit.* 20 in flight"),
        ("20 in flight burst 5", "cannot read 'burst 5'.*there may be: ttl TIME, per NAME"),
        ("20 in flight by gcra", "cannot read 'by gcra'"),
        ("20 in flight block 5m", "cannot read 'block 5m'"),
        ("20 in flight/minute", "cannot read '/minute'"),
        ("20 in flight tll 5s", "did you mean ttl"),
        ("20 in flight ttl", "cannot read 'ttl'"),
        ("20 in flight ttl 99ms", "lasts at least 100 ms"),
        ("20 in flight ttl 1 month", "months and years have no fixed length"),
        ("20 in flight ttl 5s ttl 6s", "'ttl' appears twice"),
        ("20 in flight per a as b", "'as' appears twice"),
        ("20 in flight per 10s", "'10s' cannot name a limit"),
        ("20 in flight per minute", "a limit in flight has no period; for a rate, write for instance 20/minute"),
        ("20/minute by in-flight", "is a rate; for a limit at once write 20 in flight"),
    ],
)
def test_mistakes_about_flights_are_shown_with_what_is_accepted(text, says):
    """The error quotes the part that cannot be read, and says what may stand there."""
    with pytest.raises(InvalidLimit, match=says):
        Limit.parse_all(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((100,), "a limit needs a period: write for instance Limit(100, 'minute')"),
        ((-1, "minute"), "must be a whole number from 0"),
    ],
)
def test_a_limit_without_a_period_is_refused(arguments, says):
    """A second would be a guess; a limit of what is in flight has none."""
    with pytest.raises(InvalidLimit, match=re.escape(says)):
        Limit(*arguments)
    assert Limit(20, algorithm="in-flight") == Limit.parse("20 in flight")


def test_the_lease_is_not_what_is_counted():
    """Another number or lease reads the same state; another name does not."""
    one = Limit.parse("20 in flight")
    assert one.identity == Limit.parse("5 in flight ttl 5s").identity == "in-flight"
    assert one.identity != Limit.parse("20 in flight per user").identity
    assert one != Limit.parse("20 in flight ttl 5s")
    for wrong, says in (({"burst": 5}, "all permits may be taken at once"), ({"block": "5m"}, "cannot have a block")):
        with pytest.raises(InvalidLimit, match=says):
            Limit(20, algorithm="in-flight", **wrong)


def test_a_limit_of_nothing_may_say_that_its_burst_is_nothing():
    """`0/minute` is the same limit with a burst of 0, which a plan read from a table may carry."""
    assert Limit(0, "minute", burst=0) == Limit(0, "minute") == Limit.parse("0/minute")
