"""Every figure of a comparison, slowly: no visits, no shared histories, lists in place of windows."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile

from headgate import Limiter
from headgate.clock import HandClock
from headgate.lab.comparison import Wrong


def units_in(period, uses, now):
    """The units used in the period that ends now; a use exactly one period ago is out of it."""
    return sum(cost for _, cost in takewhile(lambda use: use[0] > now - period, reversed(uses)))


def estimate(limit, uses, now):
    """The count of a window by the definition: whole slots, and the covered part of the oldest one."""
    slots, period = limit.params[2], limit.period_us
    per_period = slots or 1
    place = (now + limit.params[4]) * per_period
    slot, phase = place // period, place % period
    counts: Counter[int] = Counter()
    for time, cost in takewhile(lambda use: use[0] > now - 3 * period, reversed(uses)):
        counts[(time + limit.params[4]) * per_period // period] += cost
    if not slots:
        return counts[slot]
    return sum(counts[slot - age] for age in range(slots)) + counts[slot - slots] * (period - phase) // period


def figures(limit, requests):
    """Refused, clients, most, and the wrong answers in all three measures."""
    clock, amount, period = HandClock(), limit.amount, limit.period_us
    limiter = Limiter(limit, clock=clock)
    passed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    exact: dict[str, list[tuple[int, int]]] = defaultdict(list)
    offered: dict[str, list[tuple[int, int]]] = defaultdict(list)
    refused: Counter[str] = Counter()
    wrong: Counter[tuple[str, bool, bool]] = Counter()
    most = 0
    for now, key, cost, *_ in requests:
        clock.us = now
        allowed = limiter.hit(key, cost).allowed
        fits = {
            "same": units_in(period, passed[key], now) + cost <= amount,
            "own": units_in(period, exact[key], now) + cost <= amount,
            "offered": units_in(period, offered[key], now) + cost <= amount,
        }
        guess = limit.step.KIND == "window" and estimate(limit, offered[key], now) + cost <= amount
        for measure in fits:
            wrong[measure, guess if measure == "offered" else allowed, fits[measure]] += 1
        offered[key].append((now, cost))
        if fits["own"]:
            exact[key].append((now, cost))
        if allowed:
            passed[key].append((now, cost))
            most = max(most, units_in(period, passed[key], now))
        else:
            refused[key] += 1
    same, own, estimated = (
        Wrong(wrong[each, True, False], wrong[each, False, True]) for each in ("same", "own", "offered")
    )
    return refused.total(), len(refused), most, same, own, estimated if limit.step.KIND == "window" else None
