"""Every limit answers a request, and every answer is compared with an exact window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headgate.clock import HandClock
from headgate.lab.comparison.bins import Bins
from headgate.lab.comparison.clients import Client, Parts, Past
from headgate.lab.comparison.trailing import History
from headgate.lab.comparison.trials import LimitTrial, QueueTrial

Placed = tuple[int, LimitTrial]
"""A trial, with its place in the comparison."""


class Answers:
    """One set of answers of all trials to a request, and of the answers that exact windows would have given.

    Few sets occur, each many times. So requests are counted by their set, and the trials add these counts up later.
    """

    __slots__ = ("_allowed", "_fits", "_trials", "above", "passed", "refused")

    def __init__(self, trials: Sequence[Placed], allowed: Sequence[bool], fits: Sequence[bool]) -> None:
        self._trials, self._allowed, self._fits = trials, allowed, fits
        everywhere = all(allowed) and fits[-1]
        self.passed = None if everywhere else [at for at, passes in enumerate((*allowed, fits[-1])) if passes]
        """The trials that passed the request and, behind them, an exact log; None for all."""
        self.refused = sum(1 << place for (place, _), passes in zip(trials, allowed, strict=True) if not passes)
        """The trials that refused it, as bits."""
        self.above = [(at, *trials[at]) for at, passes in enumerate(allowed) if passes and not fits[at]]
        """The trials that have passed more than the amount, each after its place among these trials."""

    def count(self, requests: int) -> None:
        """Count requests with these answers."""
        *same_fits, exact_fits = self._fits
        for (_, trial), passes, fits in zip(self._trials, self._allowed, same_fits, strict=True):
            if passes:
                trial.same_passed += 0 if fits else requests
                trial.own_passed += 0 if exact_fits else requests
            else:
                trial.refused += requests
                trial.same_refused += requests if fits else 0
                trial.own_refused += requests if exact_fits else 0


class Question:
    """An amount per period, and the trials of the limits that enforce it: they are compared with the same windows."""

    def __init__(self, trials: Sequence[Placed], clock: HandClock) -> None:
        limit = trials[0][1].limit
        self.amount, self.period = limit.amount, limit.period_us
        self.least_most = 0
        """The least `most` of the trials, or less."""
        self._trials, self._clock = trials, clock
        self._hits = [trial.hit for _, trial in trials]
        self._estimates = [trial.offered for _, trial in trials if trial.offered is not None]
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
            for place, trial in self._trials:
                trial.clients += new >> place & 1
        if answers.above:
            self._note_above(answers, parts, bins)
        if self.least_most < self.amount:
            self._note_each(answers, parts)

    def note_most(self, units: int) -> None:
        """Note what one client has passed in a period, by every limit."""
        for _, trial in self._trials:
            trial.most = max(trial.most, units)
        self.least_most = min(trial.most for _, trial in self._trials)

    def count(self) -> None:
        """Add the answers since the last call to the counts of the trials."""
        for answers, requests in Counter(self._uncounted).items():
            answers.count(requests)
        self._uncounted.clear()

    def _learn(self, seen: tuple[bool, ...]) -> Answers:
        """Note a set of answers that was not seen before: of the trials, then of exact windows."""
        answers = self._known[seen] = Answers(self._trials, seen[: len(self._trials)], seen[len(self._trials) :])
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
        past.parts = Parts(past.shared, len(self._trials))
        if self._estimates:
            for time, cost in past.shared.two_periods:
                self._clock.us = time
                for estimate in self._estimates:
                    estimate.hit(key, cost)
            self._clock.us = now
        return past.parts

    def _note_above(self, answers: Answers, past: Parts, bins: Bins) -> None:
        """Note the units of limits that have passed more than the amount."""
        for at, place, trial in answers.above:
            units = past.everywhere + past.elsewhere[at]
            trial.most = max(trial.most, units)
            bins.above[place][-1] = max(bins.above[place][-1], units - self.amount)

    def _note_each(self, answers: Answers, past: Parts) -> None:
        """Note the units that each limit has passed in a period; no longer needed once all have passed their amount."""
        for at, (_, trial) in enumerate(self._trials):
            if answers.passed is None or at in answers.passed:
                trial.most = max(trial.most, past.everywhere + past.elsewhere[at])
        self.least_most = min(trial.most for _, trial in self._trials)


def questions(trials: Sequence[LimitTrial | QueueTrial], clock: HandClock) -> list[Question]:
    """Return the questions that answer for these trials."""
    same: dict[tuple[int, int], list[Placed]] = {}
    for place, trial in enumerate(trials):
        if isinstance(trial, LimitTrial):
            same.setdefault((trial.limit.amount, trial.limit.period_us), []).append((place, trial))
    return [Question(each, clock) for each in same.values()]
