"""`Limit`: an immutable value, compiled to integers once."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import (
    CALENDAR,
    DEFAULT,
    IN_FLIGHT,
    SCATTERED,
    Algorithm,
    Step,
    algorithm_named,
    bounds,
    bucket,
    pause,
)
from headgate.clock import SECOND
from headgate.errors import InvalidLimit
from headgate.limit.fields import (
    LEASE,
    Block,
    Period,
    algorithm_for,
    checked_block,
    checked_burst,
    checked_per,
    frames_to_caller,
    whole,
    write_block,
)
from headgate.limit.grammar import parse_fields, parse_name, write_period
from headgate.limit.scattered import scattered_seams

if TYPE_CHECKING:
    from headgate.limit.calendar import Calendar

COARSE: Final = 10
"""For amounts below this, a two-counter estimate is too coarse to be fair."""


class LimitWarning(UserWarning):
    """A limit is valid, but probably not a good choice; the message gives the reason."""


class Limit:
    """An amount per period, or in flight. Immutable, hashable; `str` gives a text that parses to the same limit.

    Examples:
        >>> Limit(100, per="minute", burst=20, name="api")
        Limit('100/minute burst 20 as api')
        >>> Limit.parse("5 per 2 hours by sliding-log").period
        7200.0
    """

    __slots__ = (
        "algorithm", "amount", "block_us", "burst", "calendar", "exact", "family", "growth", "identity", "in_flight",
        "name", "params", "period_us", "step", "_hash",
    )  # fmt: skip

    amount: int
    """Units per period; 0 lets no request pass."""
    period_us: int
    """The period. For a limit in flight: the lease of a permit, on stores that cannot see that its holder has died.

    For a window of the calendar: 31 days for a month, 366 for a year.
    """
    calendar: Calendar | None
    """The window of the calendar: a month, or a day in a zone; None for a period of fixed length."""
    burst: int
    """The most units that can pass at once; by default the amount."""
    algorithm: str
    """`token-bucket`, `sliding-window/60`, ..."""
    block_us: int
    """The time for which a refused key stays refused; 0 without a block. The first time of a block that grows."""
    growth: tuple[int, ...]
    """For `block 1m, 10m within 1d`: the memory, then seven times, of which the last is repeated; empty otherwise."""
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
        algorithm: str | None = None,
        block: Period = 0,
        name: str = "",
    ) -> None:
        period = checked_per(per, amount, algorithm)
        resolved = algorithm_for(algorithm, period)
        units = whole(amount, "the amount")
        most = units if burst is None else checked_burst(burst, units)
        self._fill(units, period, most, resolved, checked_block(block), parse_name(name) if name else "")
        if resolved.slots == 1 and 0 < self.amount < COARSE:
            warnings.warn(
                f"{self}: below {COARSE} the two-counter estimate is coarse; token-bucket, sliding-window/60 or "
                "sliding-log serve small limits better",
                LimitWarning,
                stacklevel=frames_to_caller(),
            )

    def _fill(
        self, amount: int, period: int | Calendar, burst: int, resolved: Algorithm, block: Block, name: str
    ) -> None:
        put = object.__setattr__
        put(self, "amount", amount)
        put(self, "calendar", None if isinstance(period, int) else period)
        put(self, "period_us", period if isinstance(period, int) else period.period_us)
        put(self, "burst", burst)
        put(self, "algorithm", resolved.name)
        put(self, "in_flight", resolved is IN_FLIGHT)
        put(self, "block_us", block.first_us)
        put(self, "growth", block.growth)
        if self.block_us and self.in_flight:
            raise InvalidLimit("a limit in flight cannot have a block: leave the block out, or limit a rate")
        put(self, "name", name)
        put(self, "step", resolved.step)
        put(self, "params", resolved.step.fit(self.amount, self.period_us, self.burst, resolved.slots))
        put(self, "exact", resolved.step is not bucket or bucket.is_exact(self.amount, self.period_us))
        words = [self.algorithm] if self.in_flight else [self.algorithm, self.per]
        blocks = ["growing block"] if block.growth else ["block"] if block.first_us else []
        put(self, "family", " ".join([*words, *blocks]))
        put(self, "identity", f"{self.family} as {self.name}" if self.name else self.family)
        put(self, "_hash", hash(self._fields()))

    def replace(
        self, *, amount: int | None = None, burst: int | None = None, block: Period | None = None, name: str = ""
    ) -> Limit:
        """Return a limit with other numbers or another name. A burst equal to the amount changes with the amount.

        Algorithm and period stay the same. No `LimitWarning` is issued: the original limit has caused it already.
        """
        units = self.amount if amount is None else whole(amount, "the amount")
        if burst is None:
            burst = units if self.burst == self.amount or not units else self.burst
        limit = object.__new__(Limit)
        limit._fill(
            units,
            self.calendar or self.period_us,
            checked_burst(burst, units),
            CALENDAR if self.calendar else algorithm_named(self.algorithm),
            Block(self.block_us, self.growth) if block is None else checked_block(block),
            parse_name(name) if name else self.name,
        )
        return limit

    def _starting_within(self, wait_us: int, cost: int) -> Limit:
        """Return a bucket limit on the same states, for calls of this cost.

        It refuses calls whose cost would begin to drain more than `wait_us` from now.
        """
        limit = self._with_params(bucket.starting_within(bucket.Params(*self.params), wait_us, cost))
        object.__setattr__(limit, "_hash", hash(limit._fields()))
        return limit

    def _seams_at(self, now_us: int, phase: int) -> tuple[int, ...]:
        """Return the seams of the windows around an instant, for keys of this phase; empty if the step knows them."""
        if self.calendar:
            return self.calendar.seams(now_us)
        if not self.scattered:
            return ()
        return scattered_seams(self.period_us, phase, now_us)

    def _placed(self, seams: tuple[int, ...]) -> Limit:
        """Return the same limit with the seams of the windows around an instant; both are equal."""
        return self._with_params(bounds.Params(self.amount, *seams))

    def _with_params(self, params: tuple[int, ...]) -> Limit:
        limit = object.__new__(Limit)
        for field in Limit.__slots__:
            object.__setattr__(limit, field, getattr(self, field))
        object.__setattr__(limit, "params", params)
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
        return parse_limits(text)

    @property
    def period(self) -> float:
        """The period in seconds."""
        return self.period_us / SECOND

    @property
    def per(self) -> str:
        """The period in words: `minute`, `2 hours`, `month in Europe/Berlin`."""
        return str(self.calendar) if self.calendar else write_period(self.period_us)

    @property
    def block(self) -> float:
        """The block in seconds, the first one if it grows; 0.0 if there is none."""
        return self.block_us / SECOND

    @property
    def written_block(self) -> str:
        """The block in words: `10 minutes`, or `minute, 10 minutes, day within week`."""
        return write_block(self.block_us, self.growth)

    @property
    def scattered(self) -> bool:
        """True for `by fixed-window scattered`: each key has windows that begin at another time."""
        return self.algorithm == SCATTERED.name

    @property
    def guards(self) -> bool:
        """True for the pause of a `pausable` limiter: it refuses until an instant, and its calls charge nothing."""
        return self.params == pause.GUARD

    def _fields(self) -> tuple[Any, ...]:
        # A limit from `_starting_within` has the same text and must not compare equal; a placed one must.
        params = self.calendar or (() if self.scattered else self.params)
        block = self.growth or self.block_us
        return self.amount, self.period_us, self.burst, self.algorithm, block, self.name, params

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
        if self.step is not pause:
            return Limit.parse, (str(self),)
        from headgate.limit.pauses import pause_limit  # here, because it makes limits itself

        return pause_limit, (self.algorithm, self.name, tuple(self.params))

    def __str__(self) -> str:
        if self.step is pause:
            return self.identity
        words = [f"{self.amount} in flight" if self.in_flight else f"{self.amount}/{self.per}"]
        if self.in_flight and self.period_us != LEASE:
            words.append(f"ttl {write_period(self.period_us)}")
        if self.burst != self.amount:
            words.append(f"burst {self.burst}")
        if self.algorithm != DEFAULT and not (self.in_flight or self.calendar):
            words.append(f"by {self.algorithm}")
        if self.block_us:
            words.append(f"block {self.written_block}")
        if self.name:
            words.append(f"as {self.name}")
        return " ".join(words)

    def __repr__(self) -> str:
        return f"Limit({str(self)!r})"


@lru_cache(maxsize=1024)  # plans chosen for each request are the same few strings, on the hot path
def parse_limits(text: str) -> tuple[Limit, ...]:
    """Return the limits of a text."""
    return tuple(Limit(**fields) for fields in parse_fields(text))
