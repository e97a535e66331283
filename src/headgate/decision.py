"""`Decision`: the calls of one request to a limiter, and the answer to them.

This file is written once and built twice. Python imports it as it is; the native engine includes its text and gives
the attributes C types (engine/native.pxd), so the two classes always behave alike.
"""

import math
import threading
from collections.abc import Callable, Sequence

from headgate.algorithms import NEVER, UNKNOWN, Verdict
from headgate.call import Call
from headgate.clock import write_seconds
from headgate.forks import after_fork
from headgate.layout import ANSWER_FIELDS
from headgate.limit import Limit

More = tuple[tuple[int, ...] | int, list[int] | bytes]
"""For each call: the cost (one number if all costs are equal), and the answer (flat; bytes hold 64-bit words)."""

_refunding = threading.Lock()


def _renew_lock() -> None:
    """Replace the lock after a fork, because another thread may have held it during the fork."""
    global _refunding
    _refunding = threading.Lock()


after_fork(_renew_lock)


def order_of(retry_us: int) -> float:
    """Return the rank of a retry: times first, then `UNKNOWN`, then `NEVER`."""
    return retry_us if retry_us >= 0 else math.inf if retry_us == NEVER else 2.0**62


def tightest(costs: Sequence[int], remaining: Sequence[int]) -> int:
    """Return the index of the limit with the least left or, if costs differ, with room for the fewest further calls."""
    if min(costs) < max(costs):
        remaining = [left // cost if cost else 2**63 for left, cost in zip(remaining, costs, strict=True)]
    return remaining.index(min(remaining))


def _known(us: int) -> int | None:
    return us if us >= 0 else None


class Decision:
    """The answer to a request: allowed or refused, and when to retry. True if allowed.

    Examples:
        >>> decision = Limiter("10/minute").hit("user:42")
        >>> bool(decision), decision.limit, decision.remaining, decision.retry_after, decision.reset_after
        (True, 10, 9, 0.0, 6.0)

    Over several limits, `retry_after` and `reset_after` are the largest values, and `remaining` is the least. If the
    calls have different costs, `remaining` is that of the limit with room for the fewest further calls. `binding` is
    that limit if allowed, and the limit with the longest retry if refused; `limit` is its burst.
    """

    __slots__ = (
        "allowed", "remaining", "retry_us", "reset_us", "degraded",
        "_limits", "_keys", "_bound", "_cost", "_given", "_mark_us", "_mark_num", "_more", "_returned",
        "_held",
    )  # fmt: skip

    def __init__(
        self,
        limits: tuple[Limit, ...],
        keys: str | tuple[str, ...],
        costs: tuple[int, ...],
        answers: list[int],
        *,
        charged: bool = True,
        degraded: bool = False,
    ) -> None:
        rows = range(0, len(answers), ANSWER_FIELDS)
        self.allowed = all(answers[::ANSWER_FIELDS])
        least = 0 if len(rows) == 1 else ANSWER_FIELDS * tightest(costs, answers[1::ANSWER_FIELDS])
        row = least if self.allowed else max(rows, key=lambda row: order_of(answers[row + 2]))
        self.remaining = answers[least + 1]
        self.retry_us = max(answers[2::ANSWER_FIELDS]) if self.allowed else answers[row + 2]
        resets = answers[3::ANSWER_FIELDS]
        self.reset_us = UNKNOWN if UNKNOWN in resets else max(resets)
        self.degraded = degraded
        self._limits = limits
        self._keys = keys
        self._bound = row // ANSWER_FIELDS
        # The fields describe the binding call; where there are several calls, `_more` has them all.
        self._cost = costs[self._bound]
        self._given = 0 if charged else self._cost
        self._mark_us = answers[row + 4]
        self._mark_num = answers[row + 5]
        self._more: More | None = (costs, answers) if len(costs) > 1 else None
        # The units given back of each of several calls, None before the first. `_refunding` is held for every use:
        # without the GIL a thread must not read what another one replaces.
        self._returned: tuple[int, ...] | None = None if charged else costs
        self._held = False  # True while a limiter counts its caller as in flight

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def binding(self) -> Limit:
        """The limit that decides: every other limit would allow at least as much."""
        return self._limits[self._bound]

    @property
    def limit(self) -> int:
        """The most that can pass at once under the binding limit. `100/minute burst 20`: 20."""
        return self.binding.burst

    @property
    def retry_after(self) -> float:
        """Seconds until this request is allowed: refused one microsecond earlier, allowed at that instant.

        0.0 if allowed, `math.inf` if the cost can `never` fit or the time is `unknown`. For a reservation: seconds
        from its charge until it may be used.
        """
        return self.retry_us / 1e6 if self.retry_us >= 0 else math.inf

    def retry_after_spread(self, chance: Callable[[], float] | None = None) -> float:
        """Return `retry_after` plus a random part of the time in which a whole burst comes back.

        Callers refused at one instant get the same `retry_after`, and would all retry at one instant. With this value
        they retry evenly: no caller too early, and none later than twice `retry_after` (or one second more).
        """
        if self.retry_us <= 0:
            return self.retry_after
        if chance is None:
            import random  # here, because most programs never need it

            chance = random.random
        limit = self.binding
        over = min(limit.burst * limit.period_us / limit.amount, max(self.retry_us, 1_000_000))
        return (self.retry_us + int(over * chance())) / 1e6

    @property
    def reset_after(self) -> float:
        """Seconds until the whole burst of every limit could pass at once; `math.inf` while a permit is held."""
        return math.inf if self.reset_us == UNKNOWN else self.reset_us / 1e6

    @property
    def _left(self) -> str:
        """The units left and, after `t=`, the whole seconds until the reset, as header fields write them: `9;t=6`."""
        return f"{self.remaining};t={(self.reset_us + 999_999) // 1_000_000}"

    @property
    def never(self) -> bool:
        """True if the cost is above the burst: a retry cannot succeed."""
        return self.retry_us == NEVER

    @property
    def unknown(self) -> bool:
        """True if refused until other callers release their permits, at a time that cannot be known."""
        return self.retry_us == UNKNOWN

    @property
    def granted(self) -> int:
        """Units granted: the cost of the binding call, the units that `take_up_to` got, or 0 if refused."""
        return self._cost if self.allowed else 0

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls, in the order of the request."""
        limits, keys = self._asked
        return tuple(map(Call, limits, keys, self.costs))

    @property
    def _asked(self) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
        """The limits and the keys of the calls: faster than `calls`."""
        keys = (self._keys,) * len(self._limits) if isinstance(self._keys, str) else self._keys
        return self._limits, keys

    @property
    def costs(self) -> tuple[int, ...]:
        """The cost of each call."""
        costs = self._cost if self._more is None else self._more[0]
        return (costs,) * len(self._limits) if isinstance(costs, int) else costs

    @property
    def _answers(self) -> list[int]:
        """The answers as one flat list, `ANSWER_FIELDS` integers for each call: faster than `verdicts`."""
        if self._more is None:
            return [int(self.allowed), self.remaining, self.retry_us, self.reset_us, self._mark_us, self._mark_num]
        answers = self._more[1]
        return memoryview(answers).cast("q").tolist() if isinstance(answers, bytes) else list(answers)

    @property
    def _marks(self) -> tuple[tuple[int, int], ...]:
        """The mark of each call, by which its charge can be given back."""
        flat = self._answers
        return tuple(zip(flat[4::ANSWER_FIELDS], flat[5::ANSWER_FIELDS], strict=True))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The answer of each limit, one for each call."""
        flat = self._answers
        return tuple(
            [
                Verdict(bool(flat[row]), flat[row + 1], flat[row + 2], flat[row + 3], (flat[row + 4], flat[row + 5]))
                for row in range(0, len(flat), ANSWER_FIELDS)
            ]
        )

    def as_dict(self) -> dict[str, object]:
        """Return every field as plain values, as in JSON: None for a wait that is never over or not known."""
        calls = [{"limit": str(call.limit), "key": call.key, "cost": call.cost} for call in self.calls]
        verdicts = [
            {
                "allowed": each.allowed,
                "remaining": each.remaining,
                "retry_us": _known(each.retry_us),
                "reset_us": _known(each.reset_us),
            }
            for each in self.verdicts
        ]
        return {
            "allowed": self.allowed,
            "limit": self.limit,
            "remaining": self.remaining,
            "retry_after": self.retry_us / 1e6 if self.retry_us >= 0 else None,
            "reset_after": self.reset_us / 1e6 if self.reset_us >= 0 else None,
            "retry_us": _known(self.retry_us),
            "reset_us": _known(self.reset_us),
            "granted": self.granted,
            "never": self.never,
            "unknown": self.unknown,
            "degraded": self.degraded,
            "binding": str(self.binding),
            "costs": list(self.costs),
            "calls": calls,
            "verdicts": verdicts,
        }

    def _claim_refund(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Mark the wanted units of each call as given back; return how many were charged and not given back before."""
        if not self.allowed:
            return (0,) * len(wanted)
        with _refunding:
            if self._more is None:
                units = min(wanted[0], self._cost - self._given)
                self._given += units
                return (units,)
            costs = self.costs
            given = self._returned or (0,) * len(costs)
            claimed = tuple(min(want, cost - had) for want, cost, had in zip(wanted, costs, given, strict=True))
            self._returned = tuple(map(sum, zip(given, claimed, strict=True)))
            return claimed

    @property
    def _holds_permits(self) -> bool:
        """Whether units in flight of this decision were not given back yet."""
        given = (self._given,) if self._more is None else self._returned or (0,) * len(self._limits)
        each = zip(self._limits, self.costs, given, strict=True)
        return self.allowed and any(limit.in_flight and had < cost for limit, cost, had in each)

    def __copy__(self) -> "Decision":
        """Return this Decision itself: a copy could give the same charge back a second time."""
        return self

    def __deepcopy__(self, memo: object) -> "Decision":
        return self

    def __reduce__(self) -> tuple[Callable[..., "Decision"], tuple[object, ...]]:
        """Pickle the answer; only this Decision can give its charge back."""
        return restored, (self._limits, self._keys, self.costs, self._answers, self.degraded)

    def __repr__(self) -> str:
        if self.allowed:
            answer = f"allowed, {self.remaining} of {self.limit} left"
        elif self.never:
            answer = f"refused for ever: the cost is above {self.limit}"
        elif self.unknown:
            answer = "refused until a permit is released"
        else:
            answer = f"refused, retry after {write_seconds(self.retry_us)} s"
        return f"<Decision {answer}, by {self.binding}{', degraded' if self.degraded else ''}>"


def restored(
    limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...], answers: list[int], degraded: bool
) -> Decision:
    """Return a Decision from its pickle: the same answer, with nothing to give back."""
    return Decision(limits, keys, costs, answers, charged=False, degraded=degraded)
