"""The limits of a rule: named after the rule, and fit for its action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from headgate.errors import InvalidLimit
from headgate.limit import Given, Limit, as_limits
from headgate.policy.action import Action
from headgate.policy.parser import Parser
from headgate.policy.source import Path_

LONGEST_NAME: Final = 64
DEFAULT_PLAN: Final = "default"
Plans = Mapping[str, tuple[Limit, ...]]


def compile_limits(name: str, given: object, act: Action, block: float) -> tuple[Limit, ...]:
    """Return a rule's limits, named after the rule; empty if none are given."""
    if given is None or given in ("", [], ()):
        return ()
    limits = as_limits(cast("Given", given), queues=act.kind == "delay")
    for limit in limits:
        if act.kind == "delay" and not limit.step.LENDS:
            raise InvalidLimit(f"a delay needs a limit of the bucket family; {limit} is not")
    return tuple(
        _named(name, at, limit, several=len(limits) > 1, burst=act.hold, block=block) for at, limit in enumerate(limits)
    )


def _named(rule: str, at: int, limit: Limit, several: bool, burst: int, block: float) -> Limit:
    """Name a limit after its rule: rules never share a state, and a refusal names its rule."""
    own = limit.name or (str(at + 1) if several else "")
    name = f"{rule[: LONGEST_NAME - len(own) - 1]}.{own}"[:LONGEST_NAME] if own else rule
    return limit.replace(name=name, burst=burst or None, block=block or None)


def warn_of_no_debt(parser: Parser, plans: Plans, path: Path_, name: str) -> None:
    """Warn of windows and logs, which cannot owe: they lose a later cost beyond their room unless they block."""
    every = (limit for limits in plans.values() for limit in limits if not limit.in_flight)
    limits = dict.fromkeys(str(limit) for limit in every if not limit.step.LENDS and not limit.block_us)
    if limits:
        parser.warn(
            path,
            f"rule {name}: a cost that rises after the response is charged to {', '.join(limits)} only as far as "
            "there is room; use a token bucket",
        )


def all_block(plans: Plans) -> bool:
    """Whether a refusal by each of these limits blocks the key."""
    return all(limit.block_us for limits in plans.values() for limit in limits)
