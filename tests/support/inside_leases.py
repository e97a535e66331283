"""The parts of leases that tests look at from outside, as `inside.py` does for the rest of Headgate.

Simulations drive the ledger of a process by virtual time, and write down what becomes of every unit; an app sees only
how many requests were admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from headgate.stores.leases.grants import Grant, Held, Unused
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.returns import returns
from tests.support.inside import bound_of


def ledger_of(limiter: Any) -> LeaseLedger:
    """The ledger of a limiter: which tokens it holds, and when it asks again."""
    ledger: LeaseLedger = bound_of(limiter)._ledger
    return ledger


def leases_held(ledger: LeaseLedger) -> dict[str, Held]:
    """The leases of each key: tests count their tokens, and the keys, which are bounded."""
    return ledger._held


def leases_ending(ledger: LeaseLedger) -> Sized:
    """The instants at which leases end: their number is bounded too."""
    return ledger._ending


def units_due(ledger: LeaseLedger) -> list[Unused]:
    """The units that are on their way back to the server: a simulation counts every one."""
    return ledger._unused


def set_chance(ledger: LeaseLedger, chance: Callable[[], float]) -> None:
    """Let turns be spread by this chance: the real one differs from run to run."""
    ledger.turns._chance = chance


def set_rates(ledger: LeaseLedger, rates: tuple[tuple[int, int, int, int], ...]) -> None:
    """Let turns be counted by these rates: a greedy process takes no notice of its limits."""
    ledger.turns._rates = ledger.turns._more = rates


def watch_give_back(ledger: Any, seen: Callable[[Callable[[Grant, int, int], None], Grant, int, int], None]) -> None:
    """Let units be given back through a function that is also given the original one: some are worn on the way."""
    give_back = ledger._give_back
    ledger._give_back = lambda grant, units, now: seen(give_back, grant, units, now)


def lease_locks(limiter: Any) -> list[Any]:
    """Every lock of leases: another thread may hold it during a fork."""
    owners = [ledger_of(limiter), tokens_of(bound_of(limiter))]
    return [owner._lock for owner in owners if hasattr(owner, "_lock")] + [returns._changed]


def tokens_of(gate: Any) -> Any:
    """The tokens of bound limits, which the engine spends without a question."""
    return gate._tokens


def exchange_ledger(gate: Any, make: Callable[[Any, Callable[[], int]], LeaseLedger]) -> LeaseLedger:
    """Put a ledger into bound limits, made from their tokens and their time: a simulation brings its own."""
    gate._ledger = make(gate._tokens, gate._now)
    ledger: LeaseLedger = gate._ledger
    return ledger


def peek_steps(gate: Any, key: str, cost: int) -> Any:
    """The steps of a peek: a test buys a lease between them."""
    return gate._peek(key, cost)


def return_steps(gate: Any, most: int | None = None) -> Any:
    """The steps by which the thread for returns gives back: a simulation takes them by virtual time."""
    return gate._return(most)


def stop_sweeping(gate: Any) -> None:
    """End the task that gives back, as the crash of its process does."""
    if gate._sweeping is not None:
        gate._sweeping.cancel()
