"""Decisions over states in Python: the reference steps of every algorithm, charged all or none.

The pure engine runs these over its tables. A store that keeps states elsewhere reads the cells of a decision, calls
`settle` or `give_back` in one atomic step, and writes the cells back.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.algorithms import State, Verdict, log
from headgate.algorithms.block import end_of, shut, shut_growing
from headgate.engine.choice import Decision
from headgate.engine.modes import PEEK, RESERVE, UP_TO
from headgate.limit import Limit

Look = tuple[Verdict, int]
"""A verdict, and the instant at which a block ends that follows from it."""


class Cell:
    """The state of one key under one limit."""

    __slots__ = ("state", "until")

    def __init__(self, state: State, until: int = 0) -> None:
        self.state = state
        self.until = until
        """The instant until which the key is blocked."""


def settle(
    limits: tuple[Limit, ...],
    cells: list[Cell | None],
    keys: str | tuple[str, ...],
    costs: tuple[int, ...],
    mode: int,
    wait: int,
    now: int,
) -> Decision:
    """Decide over cells, one for each limit, and charge them; None stands for a key that has no state yet."""
    wait = wait if all(limit.step.LENDS and not limit.block_us for limit in limits) else 0
    if mode == UP_TO and costs[0]:
        room = min(look(limit, cell, now, 0)[0].remaining for limit, cell in zip(limits, cells, strict=True))
        costs = (max(1, min(costs[0], room)),) * len(costs)
    ahead = _pause_ahead(limits, cells, costs, wait, now) if mode == RESERVE else 0
    looks = [
        look(limit, cell, now + ahead, cost, wait - ahead)
        for limit, cell, cost in zip(limits, cells, costs, strict=True)
    ]
    if ahead:
        looks = [(_from_now(verdict, ahead), until) for verdict, until in looks]
    if not all(verdict.allowed for verdict, _ in looks):
        looks = _refuse(limits, cells, looks, now, mode)
    elif mode == PEEK:
        looks = [_uncharged(*one, now) for one in zip(limits, cells, looks, strict=True)]
    else:
        for at, (limit, cost, (verdict, _)) in enumerate(zip(limits, costs, looks, strict=True)):
            if limit.guards and not verdict.moved:
                continue
            cell = cells[at] = cells[at] or Cell(limit.step.fresh(limit.params))
            limit.step.charge(cell.state, limit.params, verdict.mark, cost)
    answers: list[int] = []
    for verdict, _ in looks:
        answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
    return Decision(limits, keys, costs, answers, charged=mode != PEEK)


def look(limit: Limit, cell: Cell | None, now: int, cost: int, wait: int = 0) -> Look:
    """Return the verdict of one limit; a cost that fits within the wait is lent."""
    step, params = limit.step, limit.params
    state = cell.state if cell else step.fresh(params)
    if not limit.block_us:
        verdict = step.answer(state, params, now, cost)
        if not verdict.allowed and 0 < verdict.retry_us <= wait:
            verdict = step.lend(params, now, cost, verdict)
        return verdict, 0
    until = cell.until if cell else 0
    if limit.growth:
        return shut_growing(until, limit.growth, now, cost, lambda cost: step.answer(state, params, now, cost))
    return shut(until, limit.block_us, now, cost, lambda cost: step.answer(state, params, now, cost))


def remembered(limit: Limit, cell: Cell | None, now: int) -> Verdict:
    """Return the verdict of a cost of 0; its reset is the time after which the state is as that of a new key."""
    verdict = look(limit, cell, now, 0)[0]
    if cell is None or not limit.growth or not cell.until:
        return verdict
    return verdict._replace(reset_us=max(verdict.reset_us, end_of(cell.until) + limit.growth[0] - now))


def _pause_ahead(
    limits: tuple[Limit, ...], cells: Sequence[Cell | None], costs: tuple[int, ...], wait: int, now: int
) -> int:
    """Return what is left of a pause that ends within the wait: a reservation is charged as of the end of the pause.

    If it were charged as of now, its units would come back during the pause, and all callers that reserved meanwhile
    could leave at the end of the pause together.
    """
    if not limits[-1].guards:
        return 0
    left = look(limits[-1], cells[-1], now, costs[-1])[0].retry_us
    return left if left <= wait else 0


def _from_now(verdict: Verdict, ahead: int) -> Verdict:
    """Return the verdict of a later instant, with its times counted from now; nothing can pass until that instant."""
    retry = verdict.retry_us if verdict.retry_us < 0 else verdict.retry_us + ahead
    return verdict._replace(remaining=0, retry_us=retry, reset_us=verdict.reset_us + ahead)


def _uncharged(limit: Limit, cell: Cell | None, seen: Look, now: int) -> Look:
    """Return the verdict of a cost that is not charged: its remaining and reset describe the state now."""
    free = look(limit, cell, now, 0)[0]
    return seen[0]._replace(remaining=free.remaining, reset_us=free.reset_us), seen[1]


def _refuse(
    limits: tuple[Limit, ...], cells: Sequence[Cell | None], looks: list[Look], now: int, mode: int
) -> list[Look]:
    """Refuse: charge nothing, start blocks, and keep states that were corrected because the clock stepped back.

    The verdict of a limit that would have allowed describes its state without the charge.
    """
    for limit, cell, (verdict, until) in zip(limits, cells, looks, strict=True):
        if cell is not None and mode != PEEK:
            if verdict.moved:
                limit.step.charge(cell.state, limit.params, verdict.mark, 0)
            if not verdict.allowed:
                cell.until = until
    return [
        look(limit, cell, now, 0)
        if seen[0].allowed
        else _uncharged(limit, cell, seen, now)  # a peek begins no block
        if mode == PEEK and limit.block_us
        else seen
        for limit, cell, seen in zip(limits, cells, looks, strict=True)
    ]


def recorded_in(limits: tuple[Limit, ...], cells: Sequence[Cell | None], now: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return, for each limit, the instant until which a key is blocked or 0, and the stamps of a log that count now."""
    records: list[tuple[int, tuple[int, ...]]] = []
    for limit, cell in zip(limits, cells, strict=True):
        stamps = log.counting(cell.state, log.Params(*limit.params), now) if cell and limit.step is log else ()
        until = 0 if cell is None else end_of(cell.until) if limit.growth else cell.until
        records.append((until if until > now else 0, tuple(stamps)))
    return records


def give_back(
    limits: tuple[Limit, ...],
    cells: Sequence[Cell | None],
    units: tuple[int, ...],
    marks: tuple[tuple[int, int] | None, ...],
    now: int,
) -> None:
    """Give back units that were charged at these marks; no mark means charged now."""
    for limit, cell, count, mark in zip(limits, cells, units, marks, strict=True):
        if cell is not None:
            at = mark or limit.step.answer(cell.state, limit.params, now, 0).mark
            limit.step.give(cell.state, limit.params, now, at, count)


def held_in(limits: tuple[Limit, ...], cells: Sequence[Cell | None], now: int) -> list[tuple[int, int, int, bool]]:
    """Return the permits in these cells: limit index, age, units, and True, since this process holds them."""
    found = []
    for at, (limit, cell) in enumerate(zip(limits, cells, strict=True)):
        if limit.in_flight and cell is not None:
            permits = sorted(zip(*(cell.state[nth::3] for nth in range(3)), strict=True))
            found += [(at, max(0, now - since), units, True) for since, _, units in permits]
    return found
