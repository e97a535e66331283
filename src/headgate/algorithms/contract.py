"""What a step is: the contract between algorithms and everything that runs them.

A step is pure integer arithmetic on one key's state. It is written once per dialect, under the same names and in the
same order: `reference.py` (the definition), `kernel.pxi` (C integers), `kernel.lua` (doubles). A store contains no
arithmetic; it runs steps atomically:

    1. `answer` for every call of the decision, reading only;
    2. if every answer is yes: `charge` each state; if any is no: charge nothing.

Reading and writing are two functions because a decision over several limits must know every answer before it writes
any, and because a log of a million stamps is not copied to find out whether one more fits.

Number contract. Time is integer microseconds since the epoch. Integers only; what a Lua dialect must multiply stays
below 2**53, so a double is exact; `fit` checks the bounds once and refuses what does not fit with what would. Only
non-negative integers are divided. In a table a state of zeros is a key never seen.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

EXACT: Final = 2**53
"""Integers below this are exact as doubles."""

NEVER: Final = -1
"""A `retry_us` that means: this cost can never fit."""

UNKNOWN: Final = -2
"""A `retry_us` or `reset_us` that means: it depends on when others give back what they hold."""


class Verdict(NamedTuple):
    """One answer: what one limit says of one call.

    `remaining` and `reset_us` describe the state after the decision: charged if it was allowed, untouched if not.
    """

    allowed: bool
    """This limit lets the call pass. (Another limit of the same decision may still refuse it.)"""
    remaining: int
    """Whole units that could pass now. `10/minute` after 3 hits: 7."""
    retry_us: int
    """Microseconds until this very call is allowed if nothing else is charged; 0 when allowed, `NEVER` if never,
    `UNKNOWN` where that is for others to say.

    Of a call that is allowed for later, which only a reservation is: until it may be used.
    """
    reset_us: int
    """Microseconds until the whole burst could pass at once, that is, until the key is as new; or `UNKNOWN`."""
    mark: tuple[int, int] = (0, 0)
    """Where the charge lands, in the step's own terms; hand it back to `charge` and `give`."""
    moved: bool = False
    """The clock stepped back so far that the state must be moved back too: charge 0 at `mark`, even on a no."""


State = list[int]
"""One key's integers, as the reference keeps them."""


class Step(Protocol):
    """A package under `algorithms/` (a module is a value too)."""

    KIND: str
    """Names the kernel in every dialect."""
    LENDS: bool
    """Whether what does not fit now can be charged now, for later: there is then a `lend`."""
    SIZED: bool
    """Whether a larger limit keeps larger states: there is then a `carry` in C, from a small state to a large one."""

    def fit(self, amount: int, period_us: int, burst: int, slots: int) -> Any:  # noqa: ANN401 - each step has its own Params
        """Compile a limit to the step's parameters, a tuple of integers whose first is the burst; or InvalidLimit."""
        ...

    def words(self, params: Any) -> int:  # noqa: ANN401
        """How many 64-bit words one key's state takes in a table."""
        ...

    def kernel(self, params: Any) -> str:  # noqa: ANN401
        """Which of the folder's Lua files runs these parameters: `kernel`, unless a simpler one is enough."""
        ...

    def at_grant(self, mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
        """The mark to give back to where giving back must never admit more than the limit: the time of the grant."""
        ...

    def fresh(self, params: Any) -> State:  # noqa: ANN401
        """The state of a key never seen, as the reference keeps it."""
        ...

    def answer(self, state: State, params: Any, now: int, cost: int) -> Verdict:  # noqa: ANN401
        """What a call of this cost gets at this instant. Reads only."""
        ...

    def lend(self, params: Any, now: int, cost: int, refusal: Verdict) -> Verdict:  # noqa: ANN401
        """The refusal of a cost that may fit later, as a yes: charged now, usable after its retry."""
        ...

    def charge(self, state: State, params: Any, mark: tuple[int, int], cost: int) -> None:  # noqa: ANN401
        """Apply a call whose `answer` said yes and left this mark."""
        ...

    def give(self, state: State, params: Any, now: int, mark: tuple[int, int], cost: int) -> None:  # noqa: ANN401
        """Give back `cost` units charged at `mark`, as far as they still count."""
        ...
