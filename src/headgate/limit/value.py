"""`Limit`: an immutable value, compiled to integers once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.algorithms import DEFAULT, EXACT, IN_FLIGHT, Algorithm, Step, algorithm_named, bucket, pause
from headgate.clock import MILLISECOND, SECOND
from headgate.errors import InvalidLimit
from headgate.limit.grammar import parse_fields, parse_name, parse_period, write_period

if TYPE_CHECKING:
    from datetime import timedelta

LONGEST_PERIOD: Final = 2**48
COARSE: Final = 10
"""For amounts below this, a two-counter estimate is too coarse to be fair."""

LEASE: Final = 30 * SECOND
"""The lifetime of a permit on a server where its holder does not renew it."""

Period: TypeAlias = "str | int | float | timedelta"


class LimitWarning(UserWarning):
    """A limit is valid, but probably not a good choice; the message gives the reason."""


class Limit:
    """An amount per period, or in flight. Immutable, hashable; `str` gives a text that parses to the same limit.

    >>> Limit(100, per="minute", burst=20, name="api")
    Limit('100/minute burst 20 as api')
    >>> Limit.parse("5 per 2 hours by sliding-log").period
    7200.0
    """

    __slots__ = (
        "algorithm", "amount", "block_us", "burst", "exact", "family", "identity", "in_flight", "name", "params",
        "period_us", "step", "_hash",
    )  # fmt: skip

    amount: int
    """Units per period."""
    period_us: int
    """The period. For a limit in flight: the lease of a permit, on stores that cannot see that its holder has died."""
    burst: int
    """The most units that can pass at once; by default the amount."""
    algorithm: str
    """`token-bucket`, `sliding-window/60`, ..."""
    block_us: int
    """How long a refused key stays refused; 0 when there is no block."""
    name: str
    """The name after `as`; empty if there is none."""
    in_flight: bool
    """True if the limit counts units held at once: its charges must be given back."""
    exact: bool
    """False if the bucket's interval was rounded up (by less than 1/8192 us), as for 999,999,999/day."""
    family: str
    """Algorithm, period and whether there is a block: limits of one family share a table."""
    identity: str
    """The label of the state: another name, algorithm or period starts a new state, other numbers do not."""
    step: Step
    params: tuple[int, ...]
    _hash: int

    def __init__(
        self,
        amount: int,
        per: Period | None = None,
        *,
        burst: int | None = None,
        algorithm: str = DEFAULT,
        block: Period = 0,
        name: str = "",
    ) -> None:
        resolved = algorithm_named(algorithm)
        if per is None:
            if resolved is not IN_FLIGHT:
                raise InvalidLimit(f"a limit needs a period: write for instance Limit({amount!r}, 'minute')")
            per = LEASE / SECOND
        whole = _whole(amount, "the amount")
        period_us = _microseconds(per, "the period")
        most = whole if burst is None else _whole(burst, "the burst")
        block_us = _microseconds(block, "the block") if block else 0
        self._fill(whole, period_us, most, resolved, block_us, parse_name(name) if name else "")
        if resolved.slots == 1 and self.amount < COARSE:
            warnings.warn(
                f"{self}: below {COARSE} the two-counter estimate is coarse; token-bucket, sliding-window/60 or "
                "sliding-log serve small limits better",
                LimitWarning,
                stacklevel=_frames_to_caller(),
            )

    def _fill(self, amount: int, period_us: int, burst: int, resolved: Algorithm, block_us: int, name: str) -> None:
        put = object.__setattr__
        put(self, "amount", amount)
        put(self, "period_us", period_us)
        put(self, "burst", burst)
        put(self, "algorithm", resolved.name)
        put(self, "in_flight", resolved is IN_FLIGHT)
        put(self, "block_us", block_us)
        if self.block_us and self.in_flight:
            raise InvalidLimit("a limit in flight cannot have a block: leave the block out, or limit a rate")
        put(self, "name", name)
        put(self, "step", resolved.step)
        put(self, "params", resolved.step.fit(self.amount, self.period_us, self.burst, resolved.slots))
        put(self, "exact", resolved.step is not bucket or bucket.is_exact(self.amount, self.period_us))
        words = [self.algorithm] if self.in_flight else [self.algorithm, write_period(self.period_us)]
        put(self, "family", " ".join([*words, *(["block"] if self.block_us else [])]))
        put(self, "identity", f"{self.family} as {self.name}" if self.name else self.family)
        put(self, "_hash", hash(self._fields()))

    def replace(
        self, *, amount: int | None = None, burst: int | None = None, block: Period | None = None, name: str = ""
    ) -> Limit:
        """Return a limit with other numbers or another name. A burst equal to the amount changes with the amount.

        Algorithm and period stay the same. No `LimitWarning` is issued: the original limit has caused it already.
        """
        whole = self.amount if amount is None else _whole(amount, "the amount")
        if burst is None:
            burst = whole if self.burst == self.amount else self.burst
        block_us = self.block_us if block is None else _microseconds(block, "the block") if block else 0
        limit = object.__new__(Limit)
        limit._fill(
            whole,
            self.period_us,
            _whole(burst, "the burst"),
            algorithm_named(self.algorithm),
            block_us,
            parse_name(name) if name else self.name,
        )
        return limit

    def _starting_within(self, wait_us: int, cost: int) -> Limit:
        """Return a bucket limit on the same states, for calls of this cost.

        It refuses calls whose cost would begin to drain more than `wait_us` from now.
        """
        limit = object.__new__(Limit)
        put = object.__setattr__
        for field in Limit.__slots__:
            put(limit, field, getattr(self, field))
        put(limit, "params", bucket.starting_within(bucket.Params(*self.params), wait_us, cost))
        put(limit, "_hash", hash(limit._fields()))
        return limit

    @staticmethod
    def _of_pause(sets: int) -> Limit:
        """Return the pause as a limit: a guard beside other limits or, with `sets`, the limit that a pause charges."""
        limit = object.__new__(Limit)
        params = pause.SETS if sets else pause.GUARD
        fields = {
            "amount": 0, "period_us": params.longest, "burst": params.burst, "algorithm": pause.KIND, "block_us": 0,
            "name": pause.KIND, "step": pause, "params": params, "exact": True, "family": pause.KIND,
            "identity": pause.KIND, "in_flight": False,
        }  # fmt: skip
        for field, value in fields.items():
            object.__setattr__(limit, field, value)
        object.__setattr__(limit, "_hash", hash(limit._fields()))
        return limit

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse the text of one limit."""
        limits = cls.parse_all(text)
        if len(limits) != 1:
            raise InvalidLimit(f"{text!r} has {len(limits)} limits where one is expected")
        return limits[0]

    @staticmethod
    def parse_all(text: str) -> tuple[Limit, ...]:
        """Parse every limit of a text such as `10/s; 1000/hour burst 50`."""
        return _parse_all(text)

    @property
    def period(self) -> float:
        """The period in seconds."""
        return self.period_us / SECOND

    @property
    def block(self) -> float:
        """The block in seconds; 0.0 if there is none."""
        return self.block_us / SECOND

    @property
    def guards(self) -> bool:
        """True for the pause of a `pausable` limiter: it refuses until an instant, and its calls charge nothing."""
        return self.params == pause.GUARD

    def _fields(self) -> tuple[Any, ...]:
        # `params` is included, because a limit from `_starting_within` has the same text and must not compare equal.
        return self.amount, self.period_us, self.burst, self.algorithm, self.block_us, self.name, self.params

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Limit):
            return NotImplemented
        return self._hash == other._hash and self._fields() == other._fields()

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Limit cannot be changed; make another one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Limit cannot be changed; {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Limit._of_pause, self.params[2:]) if self.step is pause else (Limit.parse, (str(self),))

    def __str__(self) -> str:
        if self.step is pause:
            return self.name
        words = [f"{self.amount} in flight" if self.in_flight else f"{self.amount}/{write_period(self.period_us)}"]
        if self.in_flight and self.period_us != LEASE:
            words.append(f"ttl {write_period(self.period_us)}")
        if self.burst != self.amount:
            words.append(f"burst {self.burst}")
        if self.algorithm != DEFAULT and not self.in_flight:
            words.append(f"by {self.algorithm}")
        if self.block_us:
            words.append(f"block {write_period(self.block_us)}")
        if self.name:
            words.append(f"as {self.name}")
        return " ".join(words)

    def __repr__(self) -> str:
        return f"Limit({str(self)!r})"


PAUSE: Final = Limit._of_pause(sets=0)
"""The guard: refuses every call of a key that is paused."""
PAUSING: Final = Limit._of_pause(sets=1)
"""The same state; the cost of a call is the time of a pause."""

Given = Limit | str | Sequence[Limit | str]
"""Limits as users write them."""


@lru_cache(maxsize=1024)  # plans chosen for each request are the same few strings, on the hot path
def _parse_all(text: str) -> tuple[Limit, ...]:
    return tuple(Limit(**fields) for fields in parse_fields(text))


def stored_limit(text: str) -> Limit:
    """Return the limit of a text that a store has written: also of the pause, which is no limit in the grammar."""
    return PAUSE if text == str(PAUSE) else Limit.parse(text)


def _frames_to_caller() -> int:
    """Return the `stacklevel` of the first caller outside Headgate: a warning points at the line with the limit."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        depth, frame = depth + 1, frame.f_back
    return depth


def as_limits(given: Given, queues: bool = False) -> tuple[Limit, ...]:
    """Return the limits of a `Limit`, a text, or a sequence of both; with `queues`, a text may have `queue 50`."""
    if isinstance(given, Limit):
        return (given,)
    if isinstance(given, str):
        return tuple(Limit(**fields) for fields in parse_fields(given, queues=True)) if queues else _parse_all(given)
    if isinstance(given, Sequence):
        return tuple(limit for each in given for limit in as_limits(each, queues))
    raise InvalidLimit(f"a limit must be a Limit or a string such as '10/minute'; got {given!r}")


def _whole(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < EXACT:
        raise InvalidLimit(f"{what} of a limit must be a whole number from 1 to {EXACT - 1}; got {value!r}")
    return value


def _microseconds(period: Period, what: str) -> int:
    if isinstance(period, str):
        us = parse_period(period)
    elif isinstance(period, int | float) and not isinstance(period, bool) and 0 < period < LONGEST_PERIOD / SECOND:
        us = round(period * SECOND)
    else:
        from datetime import timedelta  # here, because most programs never need it

        if not isinstance(period, timedelta):
            raise InvalidLimit(f"{what} must be a time such as '2 hours', seconds or a timedelta; got {period!r}")
        us = period // timedelta(microseconds=1)
    if us % MILLISECOND or not 0 < us < LONGEST_PERIOD:
        raise InvalidLimit(f"{what} must be a whole number of ms, from 1 ms to 465 weeks; got {period!r}")
    return us
