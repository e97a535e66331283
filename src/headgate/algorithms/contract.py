"""The contract of a step: what an algorithm provides, and what engines and stores rely on.

A step is pure integer arithmetic on one key's state. Each dialect has its own text, with the same names in the same
order: `__init__.py` (the reference), `kernel.pxi` (C integers), `kernel.lua` (doubles), and some have a `.sql` file
(PL/pgSQL, 64-bit integers). A store contains no arithmetic; it runs steps atomically:

    1. `answer` for every call of the decision, which only reads;
    2. if every answer allows: `charge` each state; if any answer refuses: charge nothing.

Reading and writing are two functions because a decision over several limits must know every answer before it writes
any state, and because a log of a million stamps need not be copied to see whether one more fits.

Number contract. Time is integer microseconds since the epoch. All numbers are integers; the products in Lua stay below
2**53, so a double is exact. `fit` checks these bounds once; its error names the largest number that fits. Only
non-negative integers are divided. In a table, a state of zeros is a key that was never charged.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

EXACT: Final = 2**53
"""Integers below this are exact as doubles."""

NEVER: Final = -1
"""The `retry_us` of a cost that can never fit."""

UNKNOWN: Final = -2
"""A `retry_us` or `reset_us` that depends on when other callers release their permits."""


class Verdict(NamedTuple):
    """The answer of one limit to one call.

    `remaining` and `reset_us` describe the state after the decision: charged if allowed, unchanged if refused.
    """

    allowed: bool
    """True if this limit allows the call. (Another limit of the same decision may still refuse it.)"""
    remaining: int
    """Whole units that could pass now. `10/minute` after 3 hits: 7."""
    retry_us: int
    """Microseconds until this call is allowed if nothing else is charged; 0 if allowed, `NEVER` if it can never fit,
    `UNKNOWN` if it depends on other callers.

    For a reservation, which is allowed for later: microseconds until it may be used.
    """
    reset_us: int
    """Microseconds until the whole burst could pass at once; or `UNKNOWN`."""
    mark: tuple[int, int] = (0, 0)
    """The position of the charge, in the step's own terms; pass it to `charge` and `give`."""
    moved: bool = False
    """The clock stepped back so far that the state must move back too: charge 0 at `mark`, even after a refusal."""


State = list[int]
"""The integers of one key, in the reference's form."""


def only_kernel(params: Any) -> str:  # noqa: ANN401 - each step has its own Params
    """The `kernel` of a step that has one file in Lua."""
    return "kernel"


def keep_mark(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """The `at_grant` of a step whose marks identify their charges."""
    return mark


def refuse_loan(params: Any, now: int, cost: int, refusal: Verdict) -> Verdict:  # noqa: ANN401
    """The `lend` of a step that cannot charge for later."""
    return refusal


class Step(Protocol):
    """The names that a package under `algorithms/` defines."""

    KIND: str
    """The name of the kernel in every dialect."""
    LENDS: bool
    """True if a cost that does not fit now can be charged now for later use, by `lend`."""
    SIZED: bool
    """True if a larger limit has larger states: the C kernel then has a `carry`, from a small state to a large one."""

    def fit(self, amount: int, period_us: int, burst: int, slots: int) -> Any:  # noqa: ANN401
        """Return the step's parameters, a tuple of integers that starts with the burst; or raise `InvalidLimit`."""

    def words(self, params: Any) -> int:  # noqa: ANN401
        """Return the number of 64-bit words of one key's state in a table."""

    def kernel(self, params: Any) -> str:  # noqa: ANN401
        """Return the name of the Lua file for these parameters: `kernel`, unless a simpler one is enough."""

    def at_grant(self, mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
        """Return the mark for a refund that must never admit more than the limit, from the time of the grant."""

    def fresh(self, params: Any) -> State:  # noqa: ANN401
        """Return the state of a key that was never charged, in the reference's form."""

    def answer(self, state: State, params: Any, now: int, cost: int) -> Verdict:  # noqa: ANN401
        """Return the verdict for a call of this cost at this instant; do not change the state."""

    def lend(self, params: Any, now: int, cost: int, refusal: Verdict) -> Verdict:  # noqa: ANN401
        """Turn the refusal of a cost that fits later into an allowed verdict: charged now, usable after its retry."""

    def charge(self, state: State, params: Any, mark: tuple[int, int], cost: int) -> None:  # noqa: ANN401
        """Charge a call that `answer` allowed with this mark."""

    def give(self, state: State, params: Any, now: int, mark: tuple[int, int], cost: int) -> None:  # noqa: ANN401
        """Give back those of `cost` units charged at `mark` that still count."""
