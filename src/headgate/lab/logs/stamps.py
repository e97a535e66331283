"""Stamps of log lines, as microseconds: dates of servers, ISO 8601, and numbers of any usual unit."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from headgate.clock import MINUTE, SECOND
from headgate.lab.logs.formats.contract import UnreadableLine
from headgate.wording import shown

V = TypeVar("V")
LATEST: Final = 2**53
"""Later stamps do not fit the number contract: they are not of this world."""
MOST_REMEMBERED: Final = 50_000
NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
SMALLEST: Final = (("ns", 10**17), ("us", 10**14), ("ms", 10**11))
"""The least number that is read in each unit, as years after 1973 are; smaller ones are seconds."""
EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
MONTHS: Final = {"JanFebMarAprMayJunJulAugSepOctNovDec"[i : i + 3]: i // 3 + 1 for i in range(0, 36, 3)}
_ISO: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ](.*)", re.ASCII)
_CLF: Final = re.compile(r"\[?([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):(.*?)\]?", re.ASCII)
_CLOCK: Final = re.compile(
    r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:[.,]([0-9]{1,12}))? ?(?:Z|UTC|([+-])([0-9]{2}):?([0-9]{2}))?",
    re.ASCII,
)
_MINUTES: Final = {f"{minute // 60:02}:{minute % 60:02}:": minute * MINUTE for minute in range(1440)}
_SECONDS: Final = {f"{second:02}": second * SECOND for second in range(61)}
_NUMBER: Final = re.compile(r"([0-9]{1,20})(?:\.([0-9]{0,40}))?", re.ASCII)


class Memo(dict[str, V], Generic[V]):
    """Values of texts that come again and again; a bounded number of them. `memo[text]` costs no Python call then."""

    def __init__(self, make: Callable[[str], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, text: str) -> V:
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        value = self[text] = self._make(text)
        return value


@lru_cache(maxsize=1_000)
def _day(year: int, month: int, day: int) -> int:
    """Return the seconds from the epoch to a day; most lines of a log are of the same one."""
    try:
        return (datetime.date(year, month, day).toordinal() - EPOCH) * 86_400
    except ValueError as reason:
        raise UnreadableLine(f"its date is none: {reason}") from None


def date(text: str) -> int:
    """Return the microseconds of a date: ISO 8601, or as servers write it; without a zone it is UTC."""
    if found := _ISO.fullmatch(text):
        day = _day(int(found[1]), int(found[2]), int(found[3]))
    elif found := _CLF.fullmatch(text):
        day = _day(int(found[3]), MONTHS.get(found[2], 0), int(found[1]))
    else:
        raise UnreadableLine(f"{shown(text[:80])} is no date")
    clock = _CLOCK.fullmatch(found[4])
    if clock is None:
        raise UnreadableLine(f"{shown(text[:80])} has no time of day")
    hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = clock.groups()
    at = day + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    if sign:
        zone = int(zone_hours) * 3600 + int(zone_minutes) * 60
        at += zone if sign == "-" else -zone
    return checked(at * SECOND + (int(fraction.ljust(6, "0")[:6]) if fraction else 0))


def checked(time: int) -> int:
    """Return the time, if the lab can count with it."""
    if not 0 <= time < LATEST:
        raise UnreadableLine("its time is before 1970 or after 2255")
    return time


class Dates(Memo[int]):
    """Dates as servers write them, `20/Feb/2016:00:00:45 -0500`. Most are of a day that came before, with its zone."""

    def __init__(self) -> None:
        super().__init__(date)
        self._days = Memo(date)

    def __missing__(self, text: str) -> int:
        minute, second = _MINUTES.get(text[12:18]), _SECONDS.get(text[18:20])
        if len(text) != 26 or minute is None or second is None:
            return super().__missing__(text)
        time = self._days[f"{text[:12]}00:00:00{text[20:]}"] + minute + second
        if len(self) >= MOST_REMEMBERED:
            return super().__missing__(text)
        self[text] = time
        return time


class Stamps:
    """Reads the stamps of one file, all in one unit: the given one, or the one that the first stamp tells."""

    def __init__(self, unit: str = "") -> None:
        self.unit = unit
        self.texts = Memo(self._text)
        """The microseconds of texts."""

    @property
    def known(self) -> str:
        """The unit of the stamps; `date` for dates, and for a log without a stamp so far."""
        return self.unit or "date"

    def read(self, value: object) -> int:
        """Return the microseconds of a value of a field."""
        if isinstance(value, str):
            return self.texts[value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnreadableLine("it has no time" if value is None else f"{shown(value)} is no time")
        if isinstance(value, int):
            return self._scaled(value, "")
        if not 0 <= value < 10**20:  # NaN too
            raise UnreadableLine(f"{shown(value)} is no time")
        whole, _, fraction = f"{value:.9f}".partition(".")
        return self._scaled(int(whole), fraction)

    def _text(self, text: str) -> int:
        text = text.strip()
        number = _NUMBER.fullmatch(text)
        return self._scaled(int(number[1]), number[2] or "") if number else date(text)

    def _scaled(self, whole: int, fraction: str) -> int:
        if not self.unit:
            self.unit = next((unit for unit, least in SMALLEST if whole >= least), "s")
        scale = NANOSECONDS[self.unit]
        parts = int(fraction.ljust(9, "0")[:9]) * scale // 1_000_000_000 if fraction else 0
        return checked((whole * scale + parts) // 1_000)
