"""Every limit answers a request, and every answer is compared with an exact window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headgate.clock import HandClock
from headgate.lab.comparison.bins import Bins
from headgate.lab.comparison.clients import Client, Parts, Past
from headgate.lab.comparison.lanes import Lane, QueueLane
from headgate.lab.comparison.trailing import History

Placed = tuple[int, Lane]
"""A lane, with its place in the comparison."""


class Answers:
    """One set of answers of all lanes to a request, and of the answers that exact windows would have given.

    Few sets occur, each many times. So requests are counted by their set, and the lanes add these counts up later.
    """

    __slots__ = ("_allowed", "_fits", "_lanes", "above", "passed", "refused")

    def __init__(self, lanes: Sequence[Placed], allowed: Sequence[bool], fits: Sequence[bool]) -> None:
        self._lanes, self._allowed, self._fits = lanes, allowed, fits
        everywhere = all(allowed) and fits[-1]
        self.passed = None if everywhere else [at for at, passes in enumerate((*allowed, fits[-1])) if passes]
        """The lanes that passed the request and, behind them, an exact log; None for all."""
        self.refused = sum(1 << place for (place, _), passes in zip(lanes, allowed, strict=True) if not passes)
        """The lanes that refused it, as bits."""
        self.above = [(at, *lanes[at]) for at, passes in enumerate(allowed) if passes and not fits[at]]
        """The lanes that have passed more than the amount, each after its place among these lanes."""

    def count(self, requests: int) -> None:
        """Count requests with these answers."""
        *same_fits, exact_fits = self._fits
        for (_, lane), passes, fits in zip(self._lanes, self._allowed, same_fits, strict=True):
            if passes:
                lane.same_passed += 0 if fits else requests
                lane.own_passed += 0 if exact_fits else requests
            else:
                lane.refused += requests
                lane.same_refused += requests if fits else 0
                lane.own_refused += requests if exact_fits else 0


class Question:
    """An amount per period, and the lanes of the limits that enforce it: they are compared with the same windows."""

    def __init__(self, lanes: Sequence[Placed], clock: HandClock) -> None:
        limit = lanes[0][1].limit
        self.amount, self.period = limit.amount, limit.period_us
        self.least_most = 0
        """The least `most` of the lanes, or less."""
        self._lanes, self._clock = lanes, clock
        self._hits = [lane.hit for _, lane in lanes]
        self._estimates = [lane.offered for _, lane in lanes if lane.offered is not None]
        self._known: dict[tuple[bool, ...], Answers] = {}
        self._uncounted: list[Answers] = []

    def ask(self, past: Past, client: Client, time: int, cost: int, bins: Bins) -> None:
        """Ask every limit about a request, and compare the answers with exact windows."""
        self._clock.us = time
        key = client.key
        allowed = [hit(key, cost).allowed for hit in self._hits]
        if past.parts is None and self._all_pass(past.shared, time, cost, allowed):
            return
        parts = past.parts or self._part(past, key, time)
        parts.forget(time - self.period)
        fits = parts.offered + cost <= self.amount
        for estimate in self._estimates:
            guess = estimate.hit(key, cost)
            if (guess.remaining >= estimate.least) is not fits or not guess.allowed:
                estimate.miss(guess.allowed, fits)
        room = self.amount - cost - parts.everywhere
        allowed += [units <= room for units in parts.elsewhere]
        answers = self._known.get(tuple(allowed)) or self._learn(tuple(allowed))
        self._uncounted.append(answers)
        parts.add(time, cost, answers.passed)
        if answers.refused and (new := client.refuse(answers.refused, time)):
            for place, lane in self._lanes:
                lane.clients += new >> place & 1
        if answers.above:
            self._note_above(answers, parts, bins)
        if self.least_most < self.amount:
            self._note_each(answers, parts)

    def note_most(self, units: int) -> None:
        """Note what one client has passed in a period, by every limit."""
        for _, lane in self._lanes:
            lane.most = max(lane.most, units)
        self.least_most = min(lane.most for _, lane in self._lanes)

    def count(self) -> None:
        """Add the answers since the last call to the counts of the lanes."""
        for answers, requests in Counter(self._uncounted).items():
            answers.count(requests)
        self._uncounted.clear()

    def _learn(self, seen: tuple[bool, ...]) -> Answers:
        """Note a set of answers that was not seen before: of the lanes, then of exact windows."""
        answers = self._known[seen] = Answers(self._lanes, seen[: len(self._lanes)], seen[len(self._lanes) :])
        return answers

    def _all_pass(self, shared: History, time: int, cost: int, allowed: Sequence[bool]) -> bool:
        """Add a request to the past that all limits share; False if it does not pass everywhere."""
        if shared.at(time) + cost > self.amount or False in allowed:
            return False
        units = shared.add(time, cost)
        if units > self.least_most:
            self.note_most(units)
        return True

    def _part(self, past: Past, key: str, now: int) -> Parts:
        """Begin a past for each limit, and count the requests so far: they were right, and not estimated."""
        past.parts = Parts(past.shared, len(self._lanes))
        if self._estimates:
            for time, cost in past.shared.two_periods:
                self._clock.us = time
                for estimate in self._estimates:
                    estimate.hit(key, cost)
            self._clock.us = now
        return past.parts

    def _note_above(self, answers: Answers, past: Parts, bins: Bins) -> None:
        """Note the units of limits that have passed more than the amount."""
        for at, place, lane in answers.above:
            units = past.everywhere + past.elsewhere[at]
            lane.most = max(lane.most, units)
            bins.above[place][-1] = max(bins.above[place][-1], units - self.amount)

    def _note_each(self, answers: Answers, past: Parts) -> None:
        """Note the units that each limit has passed in a period; no longer needed once all have passed their amount."""
        for at, (_, lane) in enumerate(self._lanes):
            if answers.passed is None or at in answers.passed:
                lane.most = max(lane.most, past.everywhere + past.elsewhere[at])
        self.least_most = min(lane.most for _, lane in self._lanes)


def questions(lanes: Sequence[Lane | QueueLane], clock: HandClock) -> list[Question]:
    """Return the questions that answer for these lanes."""
    same: dict[tuple[int, int], list[Placed]] = {}
    for place, lane in enumerate(lanes):
        if isinstance(lane, Lane):
            same.setdefault((lane.limit.amount, lane.limit.period_us), []).append((place, lane))
    return [Question(each, clock) for each in same.values()]
