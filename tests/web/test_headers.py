"""Header fields: what they say, that any parser can read it, and that it is never too early."""

from __future__ import annotations

import math
import string
from datetime import UTC, datetime
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import HeadgateError, Limit, Limiter
from headgate.engine import Decision
from headgate.testing import ManualClock
from headgate.web import headers as web
from headgate.web.added_fields import exposed_fields
from headgate.web.disclosure import disclosure_for
from headgate.web.headers import ASGI, WSGI, headers_for, quota_and_window

pytestmark = pytest.mark.engineless

DRAFT = ("draft-11",)
LATER = 1_000_000_000.0
HOSTILE = [
    'a"b', "a\\", '\\"', "100%d", "%s%n", "é", "日本", "a\r\nSet-Cookie: x=1", "a\nb", "\0", "\x7f", "a,b;q=1", " ", "",
    "\ud800", "x" * 5000, "' OR 1=1", "a\u2028b", '"', "%",
]  # fmt: skip


def answer(words: str, *rows: tuple[int, int, int, int]) -> Decision:
    """A decision with these answers: allowed, remaining, retry us, reset us."""
    limits = Limit.parse_all(words)
    answers = [number for row in rows for number in (*row, 0, 0)]
    return Decision(limits, "k", (1,) * len(limits), answers)


def written(words, decision, styles=DRAFT, retry_after=None, clock=None, **told):
    """The fields of a decision over the limits of these words."""
    return dict(headers_for(styles, WSGI, clock)(Limit.parse_all(words), **told)(decision, retry_after))


def parsed(value: str | bytes) -> list[tuple[Any, dict[str, Any]]]:
    """A list of items, as the parser of structured fields that others use reads it."""
    items: Any = http_sf.parse(value if isinstance(value, bytes) else value.encode(), tltype="list")
    return list(items)


def test_a_ledger_of_one_limit():
    """10/minute from its first hit to its first refusal and back: what is left, until when, and how long to wait."""
    clock = ManualClock(LATER)
    limit = Limiter("10/minute", clock=clock)
    ledger = [
        # at s, cost -> RateLimit, Retry-After
        (0.0, 1, "r=9;t=6", None), (0.0, 8, "r=1;t=54", None), (0.0, 1, "r=0;t=60", None),
        (0.0, 1, "r=0;t=60", "6"), (0.5, 2, "r=0;t=60", "12"), (5.5, 1, "r=0;t=55", "1"),
        (6.0, 1, "r=0;t=60", None), (6.0, 11, "r=0;t=60", None), (66.0, 0, "r=10;t=0", None),
    ]  # fmt: skip
    for at, cost, state, wait in ledger:
        clock.advance(LATER + at - clock.now_us() / 1e6)
        decision = limit.hit("k", cost)
        refused = {} if decision else {"Cache-Control": "no-store"}
        told = {} if wait is None else {"Retry-After": wait}
        policy = {"RateLimit-Policy": '"api";q=10;w=60', "RateLimit": f'"api";{state}'}
        assert written("10/minute", decision, names="api") == {**policy, **told, **refused}


def test_a_ledger_of_styles():
    """The same answer in each style; of several limits the older ones tell of the binding one."""
    words = "100/minute as burst; 1000/day as daily"
    yes = answer(words, (1, 50, 0, 30_000_000), (1, 30, 0, 60_480_000_001))
    no = answer(words, (0, 0, 600_000, 60_000_000), (0, 0, 86_400_000, 86_400_000_000))
    instant = ManualClock(LATER)
    policy = {"RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400'}
    last = {"Retry-After": "87", "Cache-Control": "no-store"}

    def three(prefix: str, left: str, reset: str) -> dict[str, str]:
        return {f"{prefix}-Limit": "1000", f"{prefix}-Remaining": left, f"{prefix}-Reset": reset}

    ledger = {
        "draft-11": (
            {**policy, "RateLimit": '"burst";r=50;t=30, "daily";r=30;t=60481'},
            {**policy, "RateLimit": '"burst";r=0;t=60, "daily";r=0;t=86400'},
        ),
        "draft-6": (three("RateLimit", "30", "60481"), three("RateLimit", "0", "86400")),
        "x-ratelimit": (three("X-RateLimit", "30", "60481"), three("X-RateLimit", "0", "86400")),
        "x-ratelimit-epoch": (three("X-RateLimit", "30", "1000060481"), three("X-RateLimit", "0", "1000086400")),
        "none": ({}, {}),
    }
    for style, (allowed, refused) in ledger.items():
        assert written(words, yes, (style,), clock=instant) == allowed
        assert written(words, no, (style,), clock=instant) == {**refused, **last}
    together = written(words, no, ("draft-11", "draft-6", "x-ratelimit"))
    assert together == {**ledger["draft-11"][1], **ledger["draft-6"][1], **ledger["x-ratelimit"][1], **last}


@pytest.mark.parametrize(
    ("words", "quota", "window"),
    [
        ("100/minute", 100, 60), ("100/minute burst 20", 100, 60), ("10/minute burst 30", 30, 180),
        ("10/second burst 11", 20, 2), ("5 per 2 hours", 5, 7200), ("0/minute", 0, 60),
        ("1000/day by fixed-window", 1000, 86_400),
        ("200/500ms", 400, 1), ("1/1ms", 1000, 1), ("10/1500ms", 13, 2), ("1/1001ms", 1, 2),
        ("9007199254740991/1ms by fixed-window", 999_999_999_999_999, 1),
    ],
)  # fmt: skip
def test_a_ledger_of_quotas(words, quota, window):
    """The shortest whole seconds in which amount and burst come back, and how much does."""
    assert quota_and_window(Limit.parse(words)) == (quota, window)


def test_a_policy_of_the_calendar_has_no_window_in_seconds():
    """Months differ in length, so `w` is left out; `t` leads to the end of the month."""
    clock = ManualClock(datetime(2027, 2, 28, tzinfo=UTC).timestamp())
    limiter = Limiter("1000/month in Etc/UTC", clock=clock)
    fields = dict(headers_for(("draft-11",), WSGI)(limiter.limits)(limiter.hit("k")))
    assert fields["RateLimit-Policy"] == '"1000-per-month-in-Etc/UTC";q=1000'
    assert fields["RateLimit"] == '"1000-per-month-in-Etc/UTC";r=999;t=86400'


@given(amount=st.integers(1, 8000), period_ms=st.integers(1, 10_000_000), burst=st.integers(1, 20_000))
def test_the_rate_is_never_overstated_and_the_rest_never_above_the_quota(amount, period_ms, burst):
    """A client that keeps to q per w keeps to the limit; nobody has more left than the whole."""
    limit = Limit(amount, period_ms / 1000, burst=burst)
    quota, window = quota_and_window(limit)
    assert window >= 1
    assert quota * limit.period_us <= amount * window * 1_000_000 < (quota + 1) * limit.period_us
    assert quota >= max(burst, amount)


names = st.one_of(st.text(max_size=70), st.sampled_from(HOSTILE), st.text(string.printable, max_size=10))
answers = st.tuples(st.integers(0, 1), st.integers(0, 9000), st.just(1), st.integers(0, 2**48))


@given(st.data())
def test_every_field_is_read_by_a_parser_of_structured_fields(data):
    """Whatever the rules are called: the items are the policies in order, the parameters whole numbers in range."""
    rules = tuple(data.draw(st.lists(names, min_size=1, max_size=4)))
    words = [f"{data.draw(st.integers(1, 9000))}/{data.draw(st.integers(1, 99))} s" for _ in rules]
    limits = tuple(map(Limit.parse, words))
    rows = [data.draw(answers) for _ in rules]
    decision = answer("; ".join(words), *rows)
    pairs = headers_for(("draft-11", "draft-6", "x-ratelimit-epoch"), ASGI)(limits, rules)(decision)
    fields = dict(pairs)
    policies, states = parsed(fields.pop(b"ratelimit-policy")), parsed(fields.pop(b"ratelimit"))
    told = disclosure_for(limits, rules).names
    quotas = map(quota_and_window, limits)
    assert policies == [(name, {"q": quota, "w": window}) for name, (quota, window) in zip(told, quotas, strict=True)]
    assert states == [(name, {"r": row[1], "t": -(-row[3] // 10**6)}) for name, row in zip(told, rows, strict=True)]
    assert fields.pop(b"cache-control", b"no-store") == b"no-store"
    for value in fields.values():
        [(number, parameters)] = parsed(value)
        assert type(number) is int and number >= 0 and parameters == {}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_cannot_leave_its_field(name):
    """No line ends, no control characters, no bytes above ASCII, nothing long; two alike are told apart."""
    limits = Limit.parse_all("5/second; 5/minute")
    pairs = headers_for(DRAFT, ASGI)(limits, name)(answer("5/second; 5/minute", (1, 4, 0, 1), (1, 4, 0, 1)))
    assert [field for field, _ in pairs] == [b"ratelimit-policy", b"ratelimit"]
    for _, value in pairs:
        assert all(0x20 <= byte < 0x7F for byte in value) and len(value) < 300
        first, second = (item for item, _ in parsed(value))
        assert first != second


@pytest.mark.parametrize(
    ("words", "names", "told"),
    [
        ("5/second", "", ("5-per-second",)), ("5 per 2 hours by sliding-log", "", ("5-per-2-hours",)),
        ("5/second", "api", ("api",)), ("5/second as own", "api", ("own",)),
        ("5/second; 9/hour", "api", ("api", "api-2")),
        ("5/second; 9/hour; 9/day", ("api-2", "api", "api"), ("api-2", "api", "api-3")),
        ("5/second; 9/hour", ("", "x"), ("5-per-second", "x")),
        ("5/second", "a\r\nb", ("a__b",)), ("5/second", "naïve\\", ("na_ve\\",)), ("5/second", "\t", ("_",)),
        ("5/second", "  ", ("5-per-second",)), ("5/second", "y" * 65, ("y" * 64,)),
    ],
)  # fmt: skip
def test_a_ledger_of_names(words, names, told):
    """A limit's own name, else its rule's, else its rate; never the algorithm, which is nobody's business."""
    assert disclosure_for(Limit.parse_all(words), names).names == told


@pytest.mark.parametrize(
    ("us", "seconds"),
    [(1, "1"), (999_999, "1"), (1_000_000, "1"), (1_000_001, "2"), (59_999_999, "60"), (2**48, "281474977")],
)
def test_times_are_rounded_up(us, seconds):
    """Whole seconds, at least 1, and never before the time has come: in `t`, in resets and in Retry-After."""
    fields = written("5/day", answer("5/day", (0, 0, us, us)), ("draft-11", "draft-6"), names="n")
    assert (fields["Retry-After"], fields["RateLimit-Reset"]) == (seconds, seconds)
    assert fields["RateLimit"] == f'"n";r=0;t={seconds}'


def test_an_instant_is_rounded_up_once():
    """0.6 s from 0.6 s past the second is the next but one, not the third."""
    yes, clock = answer("5/day", (1, 4, 0, 600_000)), ManualClock(LATER + 0.6)
    assert written("5/day", yes, ("x-ratelimit-epoch",), clock=clock)["X-RateLimit-Reset"] == "1000000002"


moves = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5_000_000)), max_size=20)


@given(st.integers(1, 50), st.integers(1, 100_000), moves)
def test_who_waits_as_told_is_admitted(amount, period_ms, moves):
    """Retry-After is on every refusal that a wait can mend and on nothing else, and it is enough."""
    clock = ManualClock(LATER)
    limit = Limit(amount, period_ms / 1000)
    limiter, write = Limiter(limit, clock=clock), headers_for(("none",), WSGI)((limit,))
    for cost, step in moves:
        clock.advance(step / 1e6)
        decision = limiter.hit("k", cost)
        fields = dict(write(decision))
        assert ("Retry-After" in fields) == (not decision and cost <= amount)
        assert ("Cache-Control" in fields) == (not decision)
        if "Retry-After" in fields:
            clock.advance(int(fields["Retry-After"]))
            assert limiter.hit("k", cost)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "7"), (0.0, "7"), (-5.0, "7"), (6.9, "7"), (7, "7"), (7.0, "7"), (7.0001, "8"), (20.5, "21"),
        (math.inf, "7"), (math.nan, "7"),
    ],
)  # fmt: skip
def test_a_wait_may_be_spread_and_never_shortened(given, told):
    """Later than the truth is told as it is, rounded up; earlier is not told."""
    decision = answer("5/day", (0, 0, 6_500_000, 10_000_000))
    assert written("5/day", decision, ("none",), given)["Retry-After"] == told
    assert written("5/day", answer("5/day", (0, 0, 0, 0)), ("none",))["Retry-After"] == "1"


def test_never_has_no_wait():
    """A client whose cost can never pass is not told to come back, whatever other limits refuse."""
    alone = answer("5/day", (0, 5, -1, 0))
    beside = answer("5/day; 9/hour", (0, 5, -1, 0), (0, 0, 8_000_000, 9_000_000))
    assert written("5/day", alone, ("none",), 3.0) == {"Cache-Control": "no-store"}
    assert written("5/day; 9/hour", beside, ("none",)) == {"Cache-Control": "no-store"}


@pytest.mark.parametrize(("style", "prefix"), [("draft-6", "RateLimit"), ("x-ratelimit-epoch", "X-RateLimit")])
def test_a_reset_that_nobody_knows_is_not_told(style, prefix):
    """Units in flight come back when their requests end: the older styles tell the limit and the rest alone."""
    decision = Limiter("3 in flight").hit("k")
    assert written("3 in flight", decision, (style,)) == {f"{prefix}-Limit": "3", f"{prefix}-Remaining": "2"}


def test_a_refusal_without_limits():
    """A server that sheds load has no decision to tell of; it may have a wait."""
    write = headers_for(DRAFT, WSGI)(())
    assert write(None) == [("Cache-Control", "no-store")]
    assert write(None, 0.1) == [("Retry-After", "1"), ("Cache-Control", "no-store")]
    assert write(None, 4.2) == [("Retry-After", "5"), ("Cache-Control", "no-store")]


WORDS = "2/second as fast; 9/hour as slow"
FAST, SLOW = '"fast";q=2;w=1', '"slow";q=9;w=3600'


@pytest.mark.parametrize(
    ("disclose", "policy", "limit", "wait"),
    [
        ("full", f"{FAST}, {SLOW}", "9", "400"), ("retry", None, None, "400"), ("none", None, None, None),
        (("full", "retry"), FAST, "2", "400"), (("retry", "full"), SLOW, "9", "400"),
        (("none", "full"), SLOW, "9", "400"), (("full", "none"), FAST, "2", None),
        (("none", "retry"), None, None, "400"), (("retry", "none"), None, None, None),
    ],
)  # fmt: skip
def test_a_ledger_of_disclosure(disclose, policy, limit, wait):
    """Full: everything; retry: only the wait; none: nothing. A hidden limit's wait is not replaced by a shorter one."""
    no = answer(WORDS, (0, 0, 500_000, 1_000_000), (0, 0, 400_000_000, 3_600_000_000))
    fields = written(WORDS, no, ("draft-11", "draft-6"), disclose=disclose)
    assert (fields.get("RateLimit-Policy"), fields.get("RateLimit-Limit")) == (policy, limit)
    assert (fields.get("Retry-After"), fields["Cache-Control"]) == (wait, "no-store")
    shown = [item for item, _ in parsed(policy or "")]
    assert [item for item, _ in parsed(fields.get("RateLimit", ""))] == shown
    yes = written(WORDS, answer(WORDS, (1, 1, 0, 1), (1, 8, 0, 1)), ("draft-11",), disclose=disclose)
    assert set(yes) == ({"RateLimit-Policy", "RateLimit"} if policy else set())


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 9), st.booleans()), min_size=1, max_size=5))
def test_the_binding_limit_is_the_decisions(rows):
    """Found from the answers, by the rule that the decision went by, ties included."""
    words = "; ".join(f"9/second as n{place}" for place in range(len(rows)))
    answers = [(yes, left, 0 if yes else -1 if never else wait, 1) for yes, left, wait, never in rows]
    decision = answer(words, *answers)
    limits = Limit.parse_all(words)
    assert limits[web.binding_of(decision, decision._answers, range(len(limits)))] == decision.binding


def test_numbers_have_at_most_15_digits():
    """The largest limits are told as the largest number that a structured field can hold."""
    for words in ("9007199254740991/second by fixed-window", "9007199254740991/second by fixed-window; 5/day"):
        yes = answer(words, *((1, limit.burst, 0, 0) for limit in Limit.parse_all(words)))
        fields = written(words, yes, ("draft-11", "draft-6"), names="n")
        assert parsed(fields["RateLimit"])[0] == ("n", {"r": web.LARGEST, "t": 0})
        assert parsed(fields["RateLimit-Policy"])[0] == ("n", {"q": web.LARGEST, "w": 1})
        assert int(fields["RateLimit-Remaining"]) <= web.LARGEST and int(fields["RateLimit-Limit"]) <= web.LARGEST


@pytest.mark.parametrize("styles", [*((style,) for style in web.FIELDS), ("draft-11", "draft-6", "x-ratelimit-epoch")])
@pytest.mark.parametrize("allowed", [1, 0])
def test_both_wires_say_the_same(styles, allowed):
    """ASGI has bytes and lower-case names, WSGI the usual spelling; nothing else differs."""
    words, clock = "5/minute; 9/hour", ManualClock(LATER)
    decision = answer(words, (allowed, 4, 0 if allowed else 7, 8), (1, 8, 0, 9))
    wsgi = headers_for(styles, WSGI, clock)(Limit.parse_all(words))(decision)
    asgi = headers_for(styles, ASGI, clock)(Limit.parse_all(words))(decision)
    assert asgi == [(name.lower().encode(), value.encode()) for name, value in wsgi]


def test_the_fixed_part_is_made_once():
    """The same limits get the same function, and every answer a list of its own."""
    compiled = headers_for(DRAFT, ASGI)
    write = compiled((Limit.parse("5/minute"),))
    assert compiled((Limit.parse("5/minute"),)) is write
    decision = answer("5/minute", (1, 4, 0, 1))
    first, second = write(decision), write(decision)
    first.append((b"x", b"y"))
    assert first[0] is second[0] and write(decision) == second


@pytest.mark.parametrize(
    "styles",
    [(), ("draft-12",), ("none", "draft-11"), ("x-ratelimit", "x-ratelimit-epoch"), ("draft-6", "draft-6"), (None,)],
)
def test_styles_that_do_not_go_together(styles):
    """Unknown styles, two that would send one field twice, and nothing with something are errors at the start."""
    for make in (lambda: headers_for(styles, ASGI), lambda: exposed_fields(styles)):
        with pytest.raises(HeadgateError, match="header fields"):
            make()


def test_names_and_disclosures_fit_the_limits():
    """One for all or one for each; the error shows what was given."""
    for told in ({"names": ("a", "b")}, {"disclose": ("full", "none")}, {"names": ()}):
        with pytest.raises(HeadgateError, match="1 limits need one name and one disclosure each"):
            disclosure_for((Limit.parse("5/minute"),), **told)
    with pytest.raises(HeadgateError, match="full, retry, none; got 'all'"):
        disclosure_for((Limit.parse("5/minute"),), disclose="all")
