"""What a decision says in header fields, for every framework: compiled once for some limits, called once a response.

    write = headers_for(("draft-11",), ASGI)(limits)
    write(decision)     ->  RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
                            RateLimit: "burst";r=50;t=30, "daily";r=950;t=4320

| style             | fields                                                                                         |
|-------------------|------------------------------------------------------------------------------------------------|
| draft-11          | `RateLimit-Policy`, `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11         |
| draft-6           | `RateLimit-Limit`, `-Remaining`, `-Reset` of the binding limit; the reset in seconds from now  |
| x-ratelimit       | the same as `X-RateLimit-*`                                                                    |
| x-ratelimit-epoch | the same with the reset in seconds since the epoch                                             |
| none              | none of these                                                                                  |

Every number is a whole number, rounded so that nobody comes early. `w` is the shortest whole number of seconds in which
both the amount and the burst come back, and `q` how much comes back in it. The rate is never overstated, and `r` never
exceeds `q`:

    100/minute              q=100;w=60          200/500ms               q=400;w=1
    100/minute burst 20     q=100;w=60          10/minute burst 30      q=30;w=180

`r` is what could pass now and `t` when the whole burst could. `-Limit` is the burst: what `-Remaining` is a part of.
A refusal has `Cache-Control: no-store`, and `Retry-After` unless no wait helps, whatever the style.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, AnyStr, Final, Generic, NamedTuple, Protocol

from headgate.algorithms.contract import NEVER, UNKNOWN
from headgate.clock import SECOND, Clock, WallClock
from headgate.decision import order_of, tightest
from headgate.errors import HeadgateError
from headgate.layout import ANSWER_FIELDS
from headgate.limit import Limit
from headgate.limit.grammar import write_period

if TYPE_CHECKING:
    from headgate.engine import Decision

DEFAULT_STYLES: Final = ("draft-11",)
DISCLOSE: Final = ("full", "retry", "none")
"""What of a limit is told: everything, only `Retry-After`, or nothing at all."""
HIDDEN: Final = 0
"""A wait that is not told."""
REMAINING, RETRY_US, RESET_US = 1, 2, 3
"""Where they stand among the fields of an answer."""
LONGEST_NAME: Final = 64
LARGEST: Final = 999_999_999_999_999
"""The largest Integer of a structured field has 15 digits; some limits have 16."""

Names = str | tuple[str, ...]
"""The name of the rule, or one for each limit; empty where there is none."""
Disclose = str | tuple[str, ...]
"""One of `DISCLOSE` for every limit, or one for each."""


class HeaderCodec(NamedTuple, Generic[AnyStr]):
    """How an interface to a server spells fields."""

    name: Callable[[str], AnyStr]
    value: Callable[[str], AnyStr]
    text: Callable[[AnyStr], str]


ASGI: Final[HeaderCodec[bytes]] = HeaderCodec(
    lambda name: name.lower().encode("ascii"),
    lambda value: value.encode("latin-1"),
    lambda value: value.decode("latin-1"),
)
WSGI: Final[HeaderCodec[str]] = HeaderCodec(str, str, str)


class Compile(Protocol[AnyStr]):
    """What to write for these limits, in the order of the decision's calls. The last 1024 answers are kept."""

    def __call__(
        self, limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full"
    ) -> HeaderWriter[AnyStr]:
        """A limit's own name goes before its rule's; one that has neither is called after its words."""
        ...


class Disclosure(NamedTuple):
    """Which limits of a decision are told, and by which names."""

    limits: tuple[Limit, ...]
    shown: tuple[int, ...]
    """The places of those told in full."""
    names: tuple[str, ...]
    """Theirs: printable ASCII, no two alike."""
    waits: tuple[bool, ...]
    """Of each limit: whether its wait is told."""
    hides: bool
    """Some of them are not."""

    def wait(self, decision: Decision | None, retry_after: float | None) -> int:
        """Whole seconds to wait from 1 on, never too few; `NEVER` when no wait helps; or `HIDDEN`."""
        exact = 1
        if decision is None:
            if retry_after is None:
                return HIDDEN
        else:
            retry_us = decision.retry_us
            if self.hides and not self.waits[binding_of(decision, decision._answers, range(len(self.limits)))]:
                return HIDDEN
            if retry_us == NEVER:
                return NEVER
            if retry_us == UNKNOWN:  # and so is not told
                return HIDDEN
            exact = -(-retry_us // SECOND) or 1
        if retry_after is None or not exact < retry_after < math.inf:
            return exact
        return math.ceil(retry_after)


def disclosure_for(limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full") -> Disclosure:
    """Resolve what may be told; an error shows what cannot be read."""
    each_name = (names,) * len(limits) if isinstance(names, str) else names
    each = (disclose,) * len(limits) if isinstance(disclose, str) else disclose
    if not len(each_name) == len(each) == len(limits):
        raise HeadgateError(f"{len(limits)} limits need as many names and disclosures; got {names!r}, {disclose!r}")
    for word in each:
        if word not in DISCLOSE:
            raise HeadgateError(f"disclose is one of {', '.join(DISCLOSE)}; got {word!r}")
    shown = tuple(place for place, word in enumerate(each) if word == "full")
    told = unique(policy_name(limits[place], each_name[place]) for place in shown)
    return Disclosure(limits, shown, told, tuple(word != "none" for word in each), "none" in each)


def policy_name(limit: Limit, rule: str = "") -> str:
    """The limit's name, else its rule's, else its rate in words; what no field may hold becomes `_`."""
    given = "".join(char if " " <= char <= "~" else "_" for char in (limit.name or rule)[:LONGEST_NAME]).strip()
    if limit.in_flight:
        return given or f"{limit.amount}-in-flight"
    return given or f"{limit.amount}-per-{write_period(limit.period_us)}".replace(" ", "-")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """`api`, `api` becomes `api`, `api-2`: a policy is known by its name."""
    told: dict[str, None] = {}
    for name in names:
        spelling, count = name, 1
        while spelling in told:
            count += 1
            spelling = f"{name}-{count}"
        told[spelling] = None
    return tuple(told)


def quota_and_window(limit: Limit) -> tuple[int, int]:
    """`q` and `w`: the shortest whole seconds in which amount and burst come back, and how much does."""
    window = -(-max(limit.amount, limit.burst) * limit.period_us // (limit.amount * SECOND))
    return min(limit.amount * window * SECOND // limit.period_us, LARGEST), window


def whole_seconds(us: int) -> int:
    """Rounded up: 999,999 us are 1 s, 1,000,001 us are 2 s."""
    return -(-us // SECOND)


def binding_of(decision: Decision, answers: Sequence[int], places: Sequence[int]) -> int:
    """Which of these places decides, by the same rule as `Decision.binding`."""
    if all(answers[ANSWER_FIELDS * place] for place in places):
        costs = decision.costs
        left = [answers[ANSWER_FIELDS * place + REMAINING] for place in places]
        return places[tightest([costs[place] for place in places], left)]
    waits = {place: answers[ANSWER_FIELDS * place + RETRY_US] for place in places}
    return max(places, key=lambda place: order_of(waits[place]))


FieldWriter = Callable[["Decision"], list[tuple[AnyStr, AnyStr]]]
"""The fields of one style."""


class HeaderWriter(Generic[AnyStr]):
    """The fields of a decision over some limits."""

    def __init__(self, plan: Disclosure, says: Sequence[FieldWriter[AnyStr]], codec: HeaderCodec[AnyStr]) -> None:
        self.plan = plan
        self.of_yes: FieldWriter[AnyStr] = (
            says[0]
            if len(says) == 1
            else lambda decision: [pair for write_fields in says for pair in write_fields(decision)]
        )
        """What is left, without a look at whether it is a no."""
        self._retry: AnyStr = codec.name("Retry-After")
        self._number: AnyStr = codec.value("%d")
        self._no_store: tuple[AnyStr, AnyStr] = (codec.name("Cache-Control"), codec.value("no-store"))

    def __call__(
        self, decision: Decision | None, retry_after: float | None = None, seconds: int | None = None
    ) -> list[tuple[AnyStr, AnyStr]]:
        """None in place of a decision is a refusal that no limit is to blame for.

        `retry_after` may be later than the decision's own, for a crowd; never earlier. `seconds` is what
        `Disclosure.wait` said.
        """
        pairs = [] if decision is None else self.of_yes(decision)
        if decision is None or not decision.allowed:
            wait = self.plan.wait(decision, retry_after) if seconds is None else seconds
            if wait > 0:
                pairs.append((self._retry, self._number % wait))
            pairs.append(self._no_store)
        return pairs


def _draft_11(plan: Disclosure, codec: HeaderCodec[AnyStr]) -> FieldWriter[AnyStr]:
    limits = [plan.limits[place] for place in plan.shown]
    names = ['"' + name.replace("\\", r"\\").replace('"', r"\"") + '"' for name in plan.names]
    policy = (codec.name("RateLimit-Policy"), codec.value(", ".join(map(_policy_item, names, limits))))
    field = codec.name("RateLimit")
    told = zip([name.replace("%", "%%") for name in names], limits, strict=True)
    template = codec.value(", ".join(name + (";r=%d" if limit.in_flight else ";r=%d;t=%d") for name, limit in told))
    large = any(limit.burst > LARGEST for limit in limits)

    rows = [(ANSWER_FIELDS * place, plan.limits[place].in_flight) for place in plan.shown]

    def say_one(decision: Decision) -> list[tuple[AnyStr, AnyStr]]:
        return [policy, (field, template % (decision.remaining, -(-decision.reset_us // SECOND)))]

    def write_fields(decision: Decision) -> list[tuple[AnyStr, AnyStr]]:
        answers = decision._answers
        numbers: list[int] = []
        for row, in_flight in rows:
            numbers.append(answers[row + REMAINING])
            if not in_flight:  # of those nobody knows
                numbers.append(-(-answers[row + RESET_US] // SECOND))
        return [policy, (field, template % tuple([min(number, LARGEST) for number in numbers] if large else numbers))]

    return say_one if len(plan.limits) == 1 and not large and not plan.limits[0].in_flight else write_fields


def _policy_item(name: str, limit: Limit) -> str:
    if limit.in_flight:
        return f'{name};q={limit.amount};qu="concurrent-requests"'
    return "{};q={};w={}".format(name, *quota_and_window(limit))


def _three(
    fields: Sequence[str], plan: Disclosure, codec: HeaderCodec[AnyStr], clock: Clock | None
) -> FieldWriter[AnyStr]:
    """Limit, remaining and reset; the reset is an instant where there is a clock."""
    limit_field, remaining_field, reset_field = map(codec.name, fields)
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
        return told

    return write_fields


_THREE: Final = ("-Limit", "-Remaining", "-Reset")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "draft-11": ("RateLimit-Policy", "RateLimit"),
    "draft-6": tuple(f"RateLimit{end}" for end in _THREE),
    "x-ratelimit": tuple(f"X-RateLimit{end}" for end in _THREE),
    "x-ratelimit-epoch": tuple(f"X-RateLimit{end}" for end in _THREE),
    "none": (),
}
"""What each style sends."""


def _writer(style: str, plan: Disclosure, codec: HeaderCodec[AnyStr], clock: Clock) -> FieldWriter[AnyStr]:
    if style == "draft-11":
        return _draft_11(plan, codec)
    return _three(FIELDS[style], plan, codec, clock if style.endswith("-epoch") else None)


def checked_styles(styles: Sequence[str]) -> tuple[str, ...]:
    """The styles that send something; an error shows what does not go together."""
    given = (styles,) if isinstance(styles, str) else tuple(styles)
    for style in given:
        if style not in FIELDS:
            raise HeadgateError(f"a style of header fields is one of {', '.join(FIELDS)}; got {style!r}")
    fields = [field for style in given for field in FIELDS[style]]
    if len(set(fields)) < len(fields) or ("none" in given and len(given) > 1) or not given:
        raise HeadgateError(f"the styles of header fields must differ in their fields, or be 'none'; got {given!r}")
    return tuple(style for style in given if style != "none")


def headers_for(styles: Sequence[str], codec: HeaderCodec[AnyStr], clock: Clock | None = None) -> Compile[AnyStr]:
    """Compile styles; the clock is read by `x-ratelimit-epoch` only."""
    sending = checked_styles(styles)
    time = clock or WallClock()

    @lru_cache(maxsize=1024)
    def compiled(limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full") -> HeaderWriter[AnyStr]:
        plan = disclosure_for(limits, names, disclose)
        return HeaderWriter(plan, [_writer(style, plan, codec, time) for style in sending] if plan.shown else [], codec)

    return compiled


def exposed_fields(styles: Sequence[str]) -> str:
    """The value of `Access-Control-Expose-Headers` that lets a browser's script read what these styles send."""
    return ", ".join([field for style in checked_styles(styles) for field in FIELDS[style]] + ["Retry-After"])


def merge_exposed(existing: str, ours: str) -> str:
    """Both lists in one, each name once. A `*` stays, and covers nothing where credentials are sent, so ours follow."""
    names: dict[str, str] = {}
    for name in f"{existing},{ours}".split(","):
        if name.strip():
            names.setdefault(name.strip().lower(), name.strip())
    return ", ".join(names.values())


def expose_for(
    styles: Sequence[str], codec: HeaderCodec[AnyStr]
) -> Callable[[Iterable[tuple[AnyStr, AnyStr]]], list[tuple[AnyStr, AnyStr]]]:
    """A function that adds the fields of these styles to what a response exposes already."""
    ours, spelling = exposed_fields(styles), codec.name("Access-Control-Expose-Headers")
    field, alone = spelling.lower(), codec.value(ours)

    def expose(headers: Iterable[tuple[AnyStr, AnyStr]]) -> list[tuple[AnyStr, AnyStr]]:
        kept: list[tuple[AnyStr, AnyStr]] = []
        found: list[tuple[AnyStr, AnyStr]] = []
        for pair in headers:
            (found if pair[0].lower() == field else kept).append(pair)
        existing = ",".join(codec.text(value) for _, value in found)
        kept.append((spelling, codec.value(merge_exposed(existing, ours)) if found else alone))
        return kept

    return expose
