"""Read and write the text of a limit: `100/minute burst 20 by gcra block 10m as api`.

limits    = limit *( ";" limit )
limit     = amount ( "/" | "per" ) period *clause | amount "in flight" *holding
period    = [ count ] unit | "month" | "year"
clause    = ( "burst" | "queue" ) amount | "by" algorithm | "block" block | "as" name     each once, in any order
          | "from" weekday | "in" zone                                                    of a day, week, month, year
block     = period *( "," period ) [ "within" period ]
holding   = "ttl" period | ( "per" | "as" ) name

`queue` is the burst of a limit that makes requests wait, and is read only where one is meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headgate.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK
from headgate.errors import InvalidLimit
from headgate.wording import nearest, shown

if TYPE_CHECKING:
    from headgate.limit.calendar import Calendar

UNITS: Final = {
    spelling: us
    for us, spellings in {
        MILLISECOND: "ms msec msecs millisecond milliseconds",
        SECOND: "s sec secs second seconds",
        MINUTE: "m min mins minute minutes",
        HOUR: "h hr hrs hour hours",
        DAY: "d day days",
        WEEK: "w wk wks week weeks",
    }.items()
    for spelling in spellings.split()
}
_WRITTEN: Final = ((WEEK, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))
DATES: Final = {
    **dict.fromkeys(["mo", "mos", "mon", "month", "months"], "month"),
    **dict.fromkeys(["y", "yr", "yrs", "year", "years"], "year"),
    **dict.fromkeys(["quarter", "quarters"], "quarter"),
}
"""Units without a fixed length, by their spellings."""
_DATED: Final = {"day": DAY, "week": WEEK}
"""Units that are windows of the calendar where a zone or a weekday is named."""
_NUMBER: Final = r"\d[\d_]*"
_PERIOD: Final = rf"(?:{_NUMBER}\s*)?[^\W\d_]+"  # one place for spaces: two adjacent ones would backtrack
_BLOCK: Final = rf"{_PERIOD}(?:\s*,\s*{_PERIOD})*(?:\s+within\s+{_PERIOD})?"
_TIME: Final = re.compile(rf"(?:({_NUMBER})\s*)?([^\s\d_]\S*)", re.ASCII)
_WINDOW: Final = re.compile(r"(.*?)(?:\s+from\s+(\S+))?(?:\s+in\s+(\S+))?", re.IGNORECASE)
_HEAD: Final = re.compile(rf"\s*({_NUMBER})\s*(?:/|per\b)\s*({_PERIOD})\s*", re.IGNORECASE | re.ASCII)
_IN_FLIGHT: Final = re.compile(rf"\s*({_NUMBER})\s*in(?:\s+|-)flight\b\s*", re.IGNORECASE | re.ASCII)
_HOLDING: Final = re.compile(rf"(?:(ttl)\s+({_PERIOD})|(per|as)\s+(\S+))\s*", re.IGNORECASE | re.ASCII)
_CLAUSE: Final = re.compile(
    rf"(?:(burst|queue)\s+({_NUMBER})|(by)\s+([a-z-]+(?:/\w+|\s+scattered\b)?)|(block)\s+({_BLOCK})|(as)\s+(\S+)"
    r"|(in|from)\s+([^\s;]+))\s*",
    re.IGNORECASE | re.ASCII,
)
_GROUPED: Final = re.compile(r"\s*(\d{1,3}(?:,\d{3})+)(?=\s*(?:/|per\b|in\b))", re.IGNORECASE | re.ASCII)
_FRACTION: Final = re.compile(
    rf"\s*(\d{{0,9}}\.\d{{1,6}}|\d{{1,9}}\.)\s*(?:/|per\b)\s*({_PERIOD})\s*", re.IGNORECASE | re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DIGITS: Final = 16
"""2**53 has 16 digits, and no number in a limit is larger."""

Clauses = dict[str, tuple[str, Any]]
"""For each word: the argument of `Limit`, and the function that parses its value."""

EXAMPLES: Final = (
    "10/minute, 5 per 2 hours, 200/500ms, 100/hour burst 20, 5/minute by sliding-log block 10m as login, 20 in flight"
)


def parse_fields(text: str, queues: bool = False) -> list[dict[str, Any]]:
    """Parse the limits of a string into keyword arguments of `Limit`; with `queues`, `queue 50` is a clause."""
    if not isinstance(text, str):
        raise InvalidLimit(f"a limit must be a string such as {EXAMPLES}; got {text!r}")
    parts = [part for part in text.split(";") if part.strip()]
    if not parts:
        raise InvalidLimit(f"the limit {text!r} is empty; write for instance {EXAMPLES}")
    return [_parse_one(part, _QUEUES if queues else _CLAUSES) for part in parts]


def _parse_one(text: str, clauses: Clauses) -> dict[str, Any]:
    head, kind = _HEAD.match(text), _CLAUSE
    in_flight = None if head else _IN_FLIGHT.match(text)
    if head is not None:
        fields: dict[str, Any] = {"amount": _number(head[1]), "per": head[2]}
    elif in_flight is not None:
        fields = {"amount": _number(in_flight[1]), "algorithm": "in-flight"}
        head, clauses, kind = in_flight, _HOLDINGS, _HOLDING
    else:
        raise InvalidLimit(f"cannot read the limit {shown(text)}; {_amount_hint(text)}")
    at = head.end()
    while at < len(text):
        clause = kind.match(text, at)
        if clause is None:
            rest = shown(text[at:])
            raise InvalidLimit(f"cannot read {rest} in the limit {shown(text)}; {_clause_hint(text[at:], clauses)}")
        word, value = (found for found in clause.groups() if found)
        field, read = clauses.get(word.lower()) or _no_queue(text, value)
        if field in fields:
            raise InvalidLimit(f"{word!r} appears twice in the limit {shown(text)}")
        fields[field] = read(value)
        at = clause.end()
    if in_flight is None and "in-flight" in (fields.get("algorithm"), f"in-{fields.get('in')}"):
        raise InvalidLimit(f"{shown(text)} is a rate; for a limit at once write {fields['amount']} in flight")
    for word in ("from", "in"):
        if word in fields:
            fields["per"] += f" {word} {fields.pop(word)}"
    return fields


def parse_window(text: str) -> Calendar | None:
    """Parse a period of the calendar, such as `month` or `week from sunday in Europe/Berlin`; None for a plain time."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        return None
    period, weekday, zone = found[1], found[2], found[3]
    times = _TIME.fullmatch(period)
    unit = times[2].lower() if times else ""
    named = DATES.get(unit) or next((name for name, us in _DATED.items() if UNITS.get(unit) == us), None)
    if not (weekday or zone or unit in DATES):
        return None
    if times is None or named in (None, "quarter") or (times[1] and _number(times[1]) != 1):
        raise InvalidLimit(
            f"{shown(text.strip())} cannot be a window of the calendar, which is one day, week, month or year; write "
            "for instance 1000/month in Europe/Berlin, or a time of fixed length such as 30 days or 365 days"
        )
    return _calendar(named, weekday, zone)


def _calendar(unit: str, weekday: str | None, zone: str | None) -> Calendar:
    from headgate.limit.calendar import UTC_NAME, WEEKDAYS, Calendar, zone_named  # loads datetime

    if weekday and unit != "week":
        raise InvalidLimit(f"from {weekday}: only a week begins on a weekday, as in 1000/week from sunday")
    if weekday and weekday.lower() not in WEEKDAYS:
        raise InvalidLimit(f"from {shown(weekday)}: a week begins on one of {', '.join(WEEKDAYS)}")
    zone = UTC_NAME if zone is None or zone.upper() == UTC_NAME else zone
    zone_named(zone)  # its error names the zone
    return Calendar(unit, WEEKDAYS.index(weekday.lower()) if weekday else 0, zone)


def parse_period(text: str) -> int:
    """Parse a period such as `2 hours`, `500ms` or `m` into microseconds."""
    found = _TIME.fullmatch(text.strip())
    count, unit = (found[1], found[2].lower()) if found else (None, text)
    if unit in DATES:
        raise InvalidLimit(
            f"{shown(text.strip())} cannot be a time: months and years have no fixed length; "
            "write 30 days, 4 weeks or 365 days"
        )
    if unit not in UNITS:
        near = nearest(unit, UNITS)
        hint = f"did you mean {near}? " if near else ""
        raise InvalidLimit(
            f"unknown unit in the time {shown(text)}; {hint}use ms, second, minute, hour, day or week, "
            "with a whole number before it if it is not 1, as in 90 seconds"
        )
    return (_number(count) if count else 1) * UNITS[unit]


def parse_name(name: str) -> str:
    """Return the name, or raise `InvalidLimit`. Headers and metrics contain names, so few characters are allowed."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidLimit(
            f"{shown(name)} cannot name a limit; a name begins with a letter and has at most 64 letters, digits, . _ -"
        )
    return name


def _whose(name: str) -> str:
    """Return the name that `20 in flight per user` gives the limit; a unit of time is an error."""
    if name.lower() in UNITS:
        raise InvalidLimit(f"per {name}: a limit in flight has no period; for a rate, write for instance 20/{name}")
    return parse_name(name)


def write_period(us: int) -> str:
    """Write a period in its shortest form: `minute`, `2 hours`, `500 ms`."""
    for unit_us, unit in _WRITTEN:
        if us % unit_us == 0:
            count = us // unit_us
            return unit if count == 1 else f"{count} {unit}s"
    return f"{us // MILLISECOND} ms"


def _number(text: str) -> int:
    digits = text.replace("_", "")
    if len(digits) > _DIGITS:
        raise InvalidLimit(f"the number {shown(text)} is too large; at most {_DIGITS} digits")
    return int(digits)


def _amount_hint(text: str) -> str:
    """Return what to write instead of `1,000/hour` or `0.5/second`, or else examples."""
    grouped = _GROUPED.match(text)
    if grouped:
        rest = text[grouped.end() :].strip()[:40]
        plain = grouped[1].replace(",", "")
        return f"write {plain}{_spaced(rest)} or {grouped[1].replace(',', '_')}{_spaced(rest)}"
    fraction = _FRACTION.match(text)
    if fraction:
        from fractions import Fraction  # loaded for messages only

        try:
            amount = Fraction(fraction[1].rstrip("."))
            period_us = parse_period(fraction[2]) * amount.denominator
            if amount:
                return f"an amount is a whole number: write {amount.numerator} per {write_period(period_us)}"
        except InvalidLimit:  # the unit is unknown too: the examples help more
            pass
    return f"write for instance {EXAMPLES}"


def _spaced(rest: str) -> str:
    return rest if rest[:1] == "/" else f" {rest}"


def _no_queue(text: str, room: str) -> NoReturn:
    raise InvalidLimit(
        f"{shown(text)} cannot have a queue here: only a Shaper, or a rule with `act: delay`, makes requests wait; "
        f"for how many may pass at once, write burst {room}"
    )


def _clause_hint(rest: str, clauses: Clauses) -> str:
    if rest[0] in ",&+":
        return "limits are separated by ;, as in 10/second; 100/hour"
    word = (rest.split() or [""])[0].lower()  # the rest may be only Unicode spaces
    if word not in clauses:
        near = nearest(word, clauses)
        if near:
            return f"did you mean {near}?"
    if clauses is _HOLDINGS:
        return "after `in flight` there may be: ttl TIME, per NAME; limits are separated by ;"
    room = "queue" if clauses is _QUEUES else "burst"
    return (
        f"after the rate there may be: {room} N, by ALGORITHM, block TIME, as NAME, in ZONE; limits are separated by ;"
    )


_CLAUSES: Final[Clauses] = {
    "burst": ("burst", _number),
    "by": ("algorithm", lambda words: " ".join(words.lower().split())),
    "block": ("block", lambda words: " ".join(words.lower().split())),
    "as": ("name", parse_name),
    "from": ("from", str.lower),
    "in": ("in", str),
}
_QUEUES: Final[Clauses] = {**_CLAUSES, "queue": _CLAUSES["burst"]}
_HOLDINGS: Final[Clauses] = {
    "ttl": ("per", str),
    "per": ("name", _whose),
    "as": ("name", parse_name),
}
