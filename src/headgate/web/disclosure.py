"""Which limits of a decision are shown to the client, and by which names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms import NEVER, UNKNOWN
from headgate.clock import SECOND
from headgate.decision import order_of, tightest
from headgate.errors import HeadgateError
from headgate.layout import ANSWER_FIELDS
from headgate.limit import Limit

if TYPE_CHECKING:
    from headgate.engine import Decision

DISCLOSE: Final = ("full", "retry", "none")
"""How much of a limit is shown: everything, only `Retry-After`, or nothing."""
HIDDEN: Final = 0
"""A wait that is not shown."""
REMAINING, RETRY_US, RESET_US = 1, 2, 3
"""Their positions among the fields of an answer."""
LONGEST_NAME: Final = 64
_UNPRINTABLE: Final = re.compile(r"[^ -~]")

Names = str | tuple[str, ...]
"""The name of the rule, or one name for each limit; empty if there is none."""
Disclose = str | tuple[str, ...]
"""One of `DISCLOSE` for every limit, or one for each."""


class Disclosure(NamedTuple):
    """Which limits of a decision are shown, and by which names."""

    limits: tuple[Limit, ...]
    shown: tuple[int, ...]
    """The positions of the limits shown in full."""
    names: tuple[str, ...]
    """The names of the shown limits: printable ASCII, no two alike."""
    waits: tuple[bool, ...]
    """For each limit, whether its wait is shown."""
    hides: bool
    """Whether the wait of some limit is not shown."""

    def wait(self, decision: Decision | None, retry_after: float | None) -> int:
        """Return whole seconds to wait, rounded up and at least 1; `NEVER` if no wait helps; or `HIDDEN`."""
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
            if retry_us == UNKNOWN:
                return HIDDEN
            exact = -(-retry_us // SECOND) or 1
        if retry_after is None or not exact < retry_after < math.inf:
            return exact
        return math.ceil(retry_after)


def disclosure_for(limits: tuple[Limit, ...], names: Names = "", disclose: Disclose = "full") -> Disclosure:
    """Resolve which limits are shown; raise for unknown words."""
    each_name = (names,) * len(limits) if isinstance(names, str) else names
    each = (disclose,) * len(limits) if isinstance(disclose, str) else disclose
    if not len(each_name) == len(each) == len(limits):
        raise HeadgateError(f"{len(limits)} limits need one name and one disclosure each; got {names!r}, {disclose!r}")
    shown, told, waits = [], [], []
    for place, word in enumerate(each):  # one loop: fields are compiled while a request waits
        if word not in DISCLOSE:
            raise HeadgateError(f"disclose must be one of {', '.join(DISCLOSE)}; got {word!r}")
        if word == "full":
            shown.append(place)
            told.append(policy_name(limits[place], each_name[place]))
        waits.append(word != "none")
    return Disclosure(limits, tuple(shown), unique(told), tuple(waits), "none" in each)


def policy_name(limit: Limit, rule: str = "") -> str:
    """Return the limit's name, else its rule's, else its rate in words; characters not allowed in fields become `_`."""
    given = _UNPRINTABLE.sub("_", (limit.name or rule)[:LONGEST_NAME]).strip()
    if limit.in_flight:
        return given or f"{limit.amount}-in-flight"
    return given or f"{limit.amount}-per-{limit.per}".replace(" ", "-")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Make names unique: `api`, `api` becomes `api`, `api-2`."""
    told: dict[str, None] = {}
    for name in names:
        spelling, count = name, 1
        while spelling in told:
            count += 1
            spelling = f"{name}-{count}"
        told[spelling] = None
    return tuple(told)


def binding_of(decision: Decision, answers: Sequence[int], places: Sequence[int]) -> int:
    """Return the position of the limit that decides, by the same rule as `Decision.binding`."""
    if all(answers[ANSWER_FIELDS * place] for place in places):
        costs = decision.costs
        left = [answers[ANSWER_FIELDS * place + REMAINING] for place in places]
        return places[tightest([costs[place] for place in places], left)]
    waits = {place: answers[ANSWER_FIELDS * place + RETRY_US] for place in places}
    return max(places, key=lambda place: order_of(waits[place]))
