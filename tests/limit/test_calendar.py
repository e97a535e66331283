"""Windows of the calendar: their words, their errors, and their seams by other readings of the zones."""

from __future__ import annotations

import pickle
import random
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dateutil import tz  # type: ignore[import-untyped]

from headgate import InvalidLimit, Limit, Limiter, MemoryStore
from headgate.limit.calendar import Calendar, zone_named
from headgate.stores import open_store
from headgate.testing import ManualClock
from tests.support.urls import url_of

HOUR = 3_600
ZONES = (
    "Europe/Berlin", "America/New_York", "America/Havana", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe",
    "Africa/Casablanca", "Asia/Tehran", "Antarctica/Troll", "America/Sao_Paulo", "Asia/Gaza", "Asia/Pyongyang",
)  # fmt: skip
"""Zones with all that is rare: no midnight, two midnights, a skipped day, half hours, a month of other time."""
UNITS = (Calendar("day"), Calendar("week", 6), Calendar("month"), Calendar("year"))
FIRST, LAST = int(datetime(2006, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2036, 1, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1000/month", "1000/month"),
        ("1_000 PER Month in utc", "1000/month"),
        ("1000/mo by fixed-window", "1000/month"),
        ("5/1 year in Europe/Berlin", "5/year in Europe/Berlin"),
        ("5/day in UTC", "5/day in UTC"),
        ("5/week from Monday", "5/week from monday"),
        ("5/week in Europe/Berlin from sunday block 1h as q", "5/week from sunday in Europe/Berlin block hour as q"),
        ("5/w in Etc/GMT+3", "5/week in Etc/GMT+3"),
    ],
)
def test_the_text_of_a_limit_gives_the_same_limit(text, written):
    """A limit is written in one way, which parses to an equal limit; pickling keeps it."""
    limit = Limit.parse(text)
    assert str(limit) == written
    assert Limit.parse(written) == limit == pickle.loads(pickle.dumps(limit))
    assert hash(Limit.parse(written)) == hash(limit)


def test_the_period_is_an_argument_of_a_limit_too():
    """`per` takes the words of a window; other numbers keep it; other windows are other states."""
    limit = Limit(1000, per="month in Europe/Berlin")
    assert limit == Limit.parse("1000/month in Europe/Berlin")
    assert limit.replace(amount=5) == Limit.parse("5/month in Europe/Berlin")
    assert (limit.algorithm, limit.per, limit.period) == ("fixed-window", "month in Europe/Berlin", 31 * 86_400.0)
    texts = ("month", "month in Europe/Berlin", "year", "week from sunday", "week from monday", "day in UTC")
    assert len({Limit(1, text).identity for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10/2 months", "one day, week, month or year"),
        ("10/hour in Europe/Berlin", "one day, week, month or year"),
        ("10/month by token-bucket", "leave token-bucket out, or write a period of fixed length, as in 31 days"),
        ("10/month by sliding-window", "leave sliding-window out"),
        ("10/month burst 3", "its burst is 10"),
        ("10/day from sunday", "only a week begins on a weekday"),
        ("10/week from someday", "a week begins on one of monday, tuesday"),
        ("10/day in Europe/Berln", "unknown time zone 'Europe/Berln'; did you mean Europe/Berlin?"),
        ("10/day in Europe", "unknown time zone 'Europe'"),
        ("10/day in ../../etc/passwd", "unknown time zone"),
        ("10/day in /etc/localtime", "unknown time zone"),
        ("10/minute in flight", "is a rate; for a limit at once write 10 in flight"),
        ("10/month in UTC in UTC", "'in' appears twice"),
    ],
)
def test_mistakes_are_shown_with_what_is_accepted(text, says):
    """The message tells the problem and what to write."""
    with pytest.raises(InvalidLimit, match=says):
        Limit.parse(text)


def test_a_machine_without_zones_says_what_to_install(monkeypatch):
    """Without a database, a zone is an error that names the package; UTC needs no database."""
    zone_named.cache_clear()
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    monkeypatch.setattr(zoneinfo, "ZoneInfo", {}.__getitem__)
    with pytest.raises(InvalidLimit, match="no database of time zones; install one with pip install tzdata"):
        Limit(1, "day in Europe/Vienna")
    assert Limit(1, "day in UTC").calendar == Calendar("day")


def test_the_zone_is_read_once_for_each_window(monkeypatch):
    """Ten thousand decisions in two days ask the calendar twice."""
    asked = []
    own = Calendar.seams

    def seams(calendar: Calendar, now: int) -> tuple[int, ...]:
        asked.append(now)
        return own(calendar, now)

    monkeypatch.setattr(Calendar, "seams", seams)
    clock = ManualClock(1_780_000_000)
    limiter = Limiter("20000/day in Europe/Berlin", clock=clock)
    for _ in range(10_000):
        limiter.hit("k")
        clock.us += 8_640_000
    assert len(asked) == 2


def test_the_limits_of_a_decision_equal_those_of_the_limiter():
    """A decision tells the limit as it was written, in every window."""
    clock = ManualClock(1_780_000_000)
    limiter = Limiter("5/month", store=MemoryStore(clock=clock))
    for _ in range(3):
        assert limiter.hit("k").binding == limiter.limits[0]
        clock.advance(32 * 86_400)


@pytest.mark.parametrize("zone", ZONES)
def test_windows_begin_when_the_clocks_of_a_zone_show_their_first_date(zone):
    """Around a sample of the transitions of 30 years, every seam is the first instant of its window's first date."""
    instants = [*transitions(zone)]
    for instant in random.Random(zone).sample(instants, min(8, len(instants))):
        check_around(zone, instant)


@pytest.mark.soak
def test_windows_begin_so_at_every_transition_of_every_zone():
    """All transitions of 30 years of every zone of the database."""
    checked = 0
    for zone in sorted(zoneinfo.available_timezones()):
        for instant in transitions(zone):
            check_around(zone, instant)
            checked += 1
    assert checked > 10_000


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["memory", "shared", "redis", "sqlite", "postgresql"])
def test_every_store_keeps_to_the_seams(kind, tmp_path, request):
    """On the days of every transition of rare zones, a used up day is told its end, and begins anew at that instant."""
    clock = ManualClock(FIRST)
    store = open_store(url_of(kind, tmp_path, request), clock)
    try:
        for zone in ZONES:
            limiter = Limiter(f"1/day in {zone}", store=store, on_error="raise")
            for transition in transitions(zone):
                key, at = f"{zone} {transition}", transition * 1_000_000
                begin, end = Calendar("day", zone=zone).seams(at)[1:3]
                clock.us = begin
                assert limiter.hit(key).allowed, (zone, transition)
                for clock.us in (at, end - 1):
                    assert limiter.hit(key).retry_us == end - clock.us, (zone, transition)
                clock.us = end
                assert limiter.hit(key).allowed, (zone, transition)
    finally:
        if hasattr(store, "close"):
            store.close()


def transitions(zone: str) -> Iterator[int]:
    """The seconds at which the clocks of a zone are changed."""
    of = zoneinfo.ZoneInfo(zone)

    def offset(at: int) -> timedelta | None:
        return datetime.fromtimestamp(at, of).utcoffset()

    for start in range(FIRST, LAST, 72 * HOUR):
        low, high = start, start + 72 * HOUR
        if offset(low) != offset(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
            yield high


def check_around(zone: str, transition: int) -> None:
    """Compare the seams at instants around a transition with the definition, by zoneinfo and by dateutil."""
    readings = (zoneinfo.ZoneInfo(zone), tz.gettz(zone))
    for unit in UNITS:
        calendar = unit._replace(zone=zone)
        for away in (-26 * HOUR, -HOUR, -1, 0, 1, HOUR, 26 * HOUR):
            now = (transition + away) * 1_000_000
            seams = calendar.seams(now)
            assert seams[1] <= now < seams[2], (calendar, now)
            assert list(seams) == sorted(set(seams)), (calendar, now)
            for at in (1, 2):
                for of in readings:
                    check_seam(calendar, of, seams[at] // 1_000_000, seams[at + 1] // 1_000_000)


def check_seam(calendar: Calendar, zone: Any, begin: int, end: int) -> None:
    """Before its beginning the clocks have shown no date of a window or of a later one, until its end no later one."""

    def shows(at: int) -> int:
        day = datetime.fromtimestamp(at, zone).date()
        if calendar.unit in ("day", "week"):
            return day.toordinal() if calendar.unit == "day" else day.toordinal() // 7  # day 7 was a Sunday
        return day.year * 12 + (day.month if calendar.unit == "month" else 0)

    number = shows(begin)
    assert all(shows(begin - ago) < number for ago in (1, HOUR // 4, HOUR, 2 * HOUR, 26 * HOUR)), (calendar, begin)
    assert all(shows(at) <= number for at in (begin + HOUR, begin + 25 * HOUR // 2, end - 1) if at < end), (
        calendar,
        begin,
    )
    assert shows(end) > number, (calendar, end)
