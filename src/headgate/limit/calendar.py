"""Calendar windows: a day, week, month or year in a time zone, and the instants at which they begin.

A window begins at the first instant at which the clocks of its zone show its first date, also where midnight is skipped
or comes twice. Only this file knows calendars: stores get the instants as numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.algorithms import EXACT, bounds
from headgate.clock import DAY, SECOND, WEEK
from headgate.errors import InvalidLimit
from headgate.wording import nearest, shown

WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
LENGTHS: Final = {"day": DAY, "week": WEEK, "month": 31 * DAY, "year": 366 * DAY}
"""The longest that each can be, apart from changes of the clocks."""
UTC_NAME: Final = "UTC"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}", re.ASCII)


class Calendar(NamedTuple):
    """A period of the calendar: its unit, the weekday on which a week begins, and its zone."""

    unit: str
    first: int = 0
    zone: str = UTC_NAME

    @property
    def period_us(self) -> int:
        """The longest length of the unit, apart from changes of the clocks."""
        return LENGTHS[self.unit]

    def __str__(self) -> str:
        words = [self.unit]
        if self.first or (self.unit == "week" and self.zone == UTC_NAME):
            words += ["from", WEEKDAYS[self.first]]
        if self.zone != UTC_NAME or self.unit == "day":
            words += ["in", self.zone]
        return " ".join(words)

    def seams(self, now_us: int) -> tuple[int, ...]:
        """Return the beginnings of the window before an instant's, of its own, and of the three that follow."""
        zone = zone_named(self.zone)
        day = (_EPOCH + timedelta(microseconds=now_us)).astimezone(zone).date()
        place = self._number(day)
        starts = sorted({self._start(place + ahead, zone) for ahead in range(-3, bounds.SEAMS + 2)})
        own = max(at for at, start in enumerate(starts) if start <= now_us)
        return tuple(min(max(0, start), EXACT - 1) for start in starts[own - 1 : own + bounds.SEAMS - 1])

    def _number(self, day: date) -> int:
        """Return the number of the window that has this date."""
        if self.unit == "day":
            return day.toordinal()
        if self.unit == "week":
            return (day.toordinal() - 1 - self.first) // 7
        return day.year if self.unit == "year" else day.year * 12 + day.month - 1

    def _start(self, number: int, zone: tzinfo) -> int:
        """Return the instant at which the window of this number begins."""
        if self.unit == "day":
            day = date.fromordinal(number)
        elif self.unit == "week":
            day = date.fromordinal(number * 7 + 1 + self.first)
        elif self.unit == "year":
            day = date(number, 1, 1)
        else:
            day = date(number // 12, number % 12 + 1, 1)
        return _beginning(day, zone) * SECOND


def _beginning(day: date, zone: tzinfo) -> int:
    """Return the first second at which clocks in the zone show this date, or a later one if they skip it."""
    midnight = datetime(day.year, day.month, day.day)
    soonest, latest = sorted(_seconds(midnight.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if _wall(soonest, zone) >= midnight:  # midnight comes once; or twice, and the first one counts
        return soonest
    while latest - soonest > 1:  # midnight is skipped: find the instant at which the clocks jump over it
        middle = (soonest + latest) // 2
        soonest, latest = (soonest, middle) if _wall(middle, zone) >= midnight else (middle, latest)
    return latest


def _seconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(seconds=1)


def _wall(seconds: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=seconds)).astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> tzinfo:
    """Return a time zone; raise `InvalidLimit` if the database of zones lacks it, or there is none."""
    if name == UTC_NAME:
        return UTC
    from zoneinfo import ZoneInfo, available_timezones  # loaded for limits that name a zone

    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    known = available_timezones()
    if not known:
        raise InvalidLimit(
            f"{shown(name)}: this machine has no database of time zones; install one with pip install tzdata"
        )
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else "write for instance in Europe/Berlin, or in UTC"
    raise InvalidLimit(f"unknown time zone {shown(name)}; {hint}")
