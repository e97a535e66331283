"""The header fields of a decision, for every framework: compiled once for some limits, called once a response.

    write = headers_for(("draft-11",), ASGI)(limits)
    write(decision)     ->  RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
                            RateLimit: "burst";r=50;t=30, "daily";r=950;t=4320

| style             | fields                                                                                         |
|-------------------|------------------------------------------------------------------------------------------------|
| draft-11          | `RateLimit-Policy`, `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11         |
| draft-6           | `RateLimit-Limit`, `-Remaining`, `-Reset` of the binding limit; the reset in seconds from now  |
| x-ratelimit       | the same as `X-RateLimit-*`                                                                    |
| x-ratelimit-epoch | the same with the reset in seconds since the epoch                                             |
| own names         | limit, remaining and reset under names that the policy chooses; the reset in seconds from now  |
| none              | none of these                                                                                  |

Every number is a whole number, rounded so that no client retries early. `w` is the shortest whole number of seconds in
which both the amount and the burst come back, and `q` how much comes back in it. The rate is never overstated, and `r`
never exceeds `q`:

    100/minute              q=100;w=60          200/500ms               q=400;w=1
    100/minute burst 20     q=100;w=60          10/minute burst 30      q=30;w=180

`r` is what could pass now, and `t` when the whole burst could. `-Limit` is the burst; `-Remaining` is a part of it.
A refusal has `Cache-Control: no-store`, and `Retry-After` unless no wait helps, whatever the style.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING, AnyStr, Final, Generic, NamedTuple, Protocol

from headgate.algorithms import UNKNOWN
from headgate.clock import SECOND, Clock, WallClock
from headgate.errors import HeadgateError
from headgate.layout import ANSWER_FIELDS
from headgate.limit import Limit
from headgate.policy.edges import HeaderStyle
from headgate.web.disclosure import (
    REMAINING,
    RESET_US,
    Disclose,
    Disclosure,
    Names,
    binding_of,
    disclosure_for,
)

if TYPE_CHECKING:
    from headgate.engine import Decision

LARGEST: Final = 999_999_999_999_999
"""The largest Integer of a structured field has 15 digits; some limits have 16."""


class HeaderCodec(NamedTuple, Generic[AnyStr]):
    """The encoding of header fields in a server interface."""

    name: Callable[[str], AnyStr]
    value: Callable[[str], AnyStr]
    text: Callable[[AnyStr], str]


ASGI: Final[HeaderCodec[bytes]] = HeaderCodec(
    lambda name: name.lower().encode("ascii"),
    methodcaller("encode", "latin-1"),
    methodcaller("decode", "latin-1"),
)
WSGI: Final[HeaderCodec[str]] = HeaderCodec(str, str, str)


class Compile(Protocol[AnyStr]):
    """Return the writer for these limits, in the order of the decision's calls. The last 1024 writers are kept."""

    def __call__(
        self, limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full"
    ) -> HeaderWriter[AnyStr]:
        """A limit's own name is preferred to its rule's; a limit without either is named after its rate."""
        ...


def quota_and_window(limit: Limit) -> tuple[int, int]:
    """Return `q` and `w`: how much comes back in the shortest whole seconds that restore amount and burst."""
    if not limit.amount:
        return 0, whole_seconds(limit.period_us)
    window = -(-max(limit.amount, limit.burst) * limit.period_us // (limit.amount * SECOND))
    return min(limit.amount * window * SECOND // limit.period_us, LARGEST), window


def whole_seconds(us: int) -> int:
    """Round up to seconds: 999,999 us are 1 s, 1,000,001 us are 2 s."""
    return -(-us // SECOND)


FieldWriter = Callable[["Decision"], list[tuple[AnyStr, AnyStr]]]
"""A function from a decision to the fields of one style."""


class RefusalFields(NamedTuple, Generic[AnyStr]):
    """The fields of every refusal, as a codec encodes them."""

    retry: AnyStr
    number: AnyStr
    no_store: tuple[AnyStr, AnyStr]


class HeaderWriter(Generic[AnyStr]):
    """Writes the fields of a decision over some limits."""

    def __init__(self, plan: Disclosure, says: Sequence[FieldWriter[AnyStr]], refusal: RefusalFields[AnyStr]) -> None:
        self.plan = plan
        self.writes = bool(says)
        """Whether `write_remaining` writes anything."""
        self.write_remaining: FieldWriter[AnyStr] = (
            says[0]
            if len(says) == 1
            else lambda decision: [pair for write_fields in says for pair in write_fields(decision)]
        )
        """Writes only the fields that show what is left, also for a refusal."""
        self._retry: AnyStr = refusal.retry
        self._number: AnyStr = refusal.number
        self._no_store: tuple[AnyStr, AnyStr] = refusal.no_store

    def __call__(
        self, decision: Decision | None, retry_after: float | None = None, seconds: int | None = None
    ) -> list[tuple[AnyStr, AnyStr]]:
        """Return the fields. None in place of a decision is a refusal that no limit caused.

        `retry_after` may be later than the decision's own, to stagger clients; never earlier. `seconds` is the result
        of `Disclosure.wait`.
        """
        pairs = [] if decision is None else self.write_remaining(decision)
        if decision is None or not decision.allowed:
            wait = self.plan.wait(decision, retry_after) if seconds is None else seconds
            if wait > 0:
                pairs.append((self._retry, self._number % wait))
            pairs.append(self._no_store)
        return pairs


def _draft_11(plan: Disclosure, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
    items, templates, rows, large = [], [], [], False
    for place, given in zip(plan.shown, plan.names, strict=True):  # one loop: fields are compiled while a request waits
        limit = plan.limits[place]
        name = '"' + given.replace("\\", r"\\").replace('"', r"\"") + '"'
        if limit.in_flight:
            items.append(f'{name};q={limit.amount};qu="concurrent-requests"')
            templates.append(name.replace("%", "%%") + ";r=%d")
        elif limit.calendar:  # no `w`: windows of the calendar differ in length
            items.append(f"{name};q={min(limit.amount, LARGEST)}")
            templates.append(name.replace("%", "%%") + ";r=%d;t=%d")
        else:
            items.append("{};q={};w={}".format(name, *quota_and_window(limit)))
            templates.append(name.replace("%", "%%") + ";r=%d;t=%d")
        rows.append((ANSWER_FIELDS * place, limit.in_flight))
        large = large or limit.burst > LARGEST
    policy = (codec.name("RateLimit-Policy"), codec.value(", ".join(items)))
    field, template = codec.name("RateLimit"), codec.value(", ".join(templates))

    def write_fields(decision: Decision) -> list[tuple[AnyStr, AnyStr]]:
        answers = decision._answers
        numbers: list[int] = []
        for row, in_flight in rows:
            numbers.append(answers[row + REMAINING])
            if not in_flight:  # a limit in flight has no reset time
                numbers.append(-(-answers[row + RESET_US] // SECOND))
        return [policy, (field, template % tuple([min(number, LARGEST) for number in numbers] if large else numbers))]

    if len(plan.limits) > 1 or large or rows[0][1]:
        return write_fields
    return _one_limit(policy, field, template)


class TextFields(NamedTuple):
    """The fields of one limit, where headers are text: all of them but two numbers is known in advance."""

    policy: tuple[str, str]
    field: str
    begin: str

    def write(self, decision: Decision) -> list[tuple[str, str]]:
        """Return the fields of a decision."""
        return [self.policy, (self.field, self.begin + decision._left)]


def _one_limit(policy: tuple[AnyStr, AnyStr], field: AnyStr, template: AnyStr) -> FieldWriter[AnyStr]:
    """Return a writer for most policies: one limit, and `name;r=%d;t=%d` as its template."""
    if isinstance(template, bytes):
        start = template.removesuffix(b"%d;t=%d").replace(b"%%", b"%")
        return lambda decision: [policy, (field, start + decision._left.encode())]
    begin = template.removesuffix("%d;t=%d").replace("%%", "%")
    return TextFields(policy, field, begin).write


def _three(
    fields: Sequence[str], plan: Disclosure, codec: HeaderCodec[AnyStr], clock: Clock | None
) -> FieldWriter[AnyStr]:
    """Write limit, remaining and reset; with a clock, the reset is an instant."""
    limit_field, remaining_field, reset_field = map(codec.name, fields)
    unnamed = codec.name("")
    totals = [(limit_field, codec.value(str(min(limit.burst, LARGEST)))) for limit in plan.limits]
    number = codec.value("%d")

    def write_fields(decision: Decision) -> list[tuple[AnyStr, AnyStr]]:
        answers = decision._answers
        at = plan.shown[0] if len(plan.shown) == 1 else binding_of(decision, answers, plan.shown)
        remaining, reset_us = answers[ANSWER_FIELDS * at + REMAINING], answers[ANSWER_FIELDS * at + RESET_US]
        told = [totals[at], (remaining_field, number % min(remaining, LARGEST))]
        if reset_us != UNKNOWN:
            reset = whole_seconds(reset_us if clock is None else reset_us + clock.now_us())
            told.append((reset_field, number % reset))
        return told if all(fields) else [pair for pair in told if pair[0] != unnamed]

    return write_fields


_THREE: Final = ("-Limit", "-Remaining", "-Reset")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "draft-11": ("RateLimit-Policy", "RateLimit"),
    "draft-6": tuple(f"RateLimit{end}" for end in _THREE),
    "x-ratelimit": tuple(f"X-RateLimit{end}" for end in _THREE),
    "x-ratelimit-epoch": tuple(f"X-RateLimit{end}" for end in _THREE),
    "none": (),
}
"""The fields that each style sends."""


def fields_of(style: HeaderStyle) -> tuple[str, ...]:
    """Return the names of the fields of a style."""
    return FIELDS[style] if isinstance(style, str) else tuple(name for name in style if name)


def _writer(style: HeaderStyle, plan: Disclosure, codec: HeaderCodec[AnyStr], clock: Clock) -> FieldWriter[AnyStr]:
    if not isinstance(style, str):
        return _three(style, plan, codec, None)
    if style == "draft-11":
        return _draft_11(plan, codec)
    return _three(FIELDS[style], plan, codec, clock if style.endswith("-epoch") else None)


def checked_styles(styles: Sequence[HeaderStyle]) -> tuple[HeaderStyle, ...]:
    """Return the styles that send fields; raise for styles that cannot be combined."""
    given = (styles,) if isinstance(styles, str) else tuple(styles)
    for style in given:
        if not isinstance(style, tuple) and style not in FIELDS:
            raise HeadgateError(f"unknown style of header fields {style!r}; expected one of {', '.join(FIELDS)}")
    fields = [field for style in given for field in fields_of(style)]
    if len(set(fields)) < len(fields) or ("none" in given and len(given) > 1) or not given:
        raise HeadgateError(f"styles of header fields must send different fields, or be 'none' alone; got {given!r}")
    return tuple(style for style in given if style != "none")


def headers_for(
    styles: Sequence[HeaderStyle], codec: HeaderCodec[AnyStr], clock: Clock | None = None
) -> Compile[AnyStr]:
    """Compile styles; the clock is read by `x-ratelimit-epoch` only."""
    sending = checked_styles(styles)
    time = clock or WallClock()
    no_store = (codec.name("Cache-Control"), codec.value("no-store"))
    refusal = RefusalFields(codec.name("Retry-After"), codec.value("%d"), no_store)

    @lru_cache(maxsize=1024)
    def compiled(limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full") -> HeaderWriter[AnyStr]:
        plan = disclosure_for(limits, names, disclose)
        shown = sending if plan.shown else ()
        says = list(map(_writer, shown, repeat(plan), repeat(codec), repeat(time)))
        return HeaderWriter(plan, says, refusal)

    return compiled
