"""One pass over a log: a policy decides about each request, and perhaps the policy before it does too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.clock import SECOND
from headgate.lab.comparison.bins import Bins
from headgate.lab.logs import LogFacts, Row
from headgate.lab.policies.needs import replayable
from headgate.lab.policies.results import Change, ChangedClient, PolicyEffect, PolicyReplay, RuleEffect
from headgate.lab.policies.trial import PolicyTrial
from headgate.lab.text import ERRORS
from headgate.policy import RequestView
from headgate.policy.command import read_source

SHOWN_CLIENTS: Final = 10
NOBODY: Final = RequestView("GET", "/", {})
"""A request without a plan."""


class PolicyMeasurement:
    """The policies, and the clients seen so far. `known` says what the log has, as in `replayable`."""

    def __init__(self, new: str | Path, old: str | Path | None, known: frozenset[str]) -> None:
        self._new = _Candidate(new, known)
        self._old = None if old is None else _Candidate(old, known)
        self._bins = Bins(1 if old is None else 2)
        self._requests: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        """By client: requests that only the new policy refuses."""
        self._let_in: Counter[str] = Counter()
        """By client: requests that only the old policy refuses."""

    def take(self, requests: Iterable[Row]) -> None:
        """Take the next requests, in the order of their times."""
        new, old, bins = self._new, self._old, self._bins
        seen, errors = self._requests, self._errors
        for request in requests:
            time, key = request[0], request[1]
            if time >= bins.end:
                bins.reach(time)
            bins.offered[-1] += 1
            seen[key] += 1
            if request[5] >= ERRORS:
                errors[key] += 1
            passes = new.passes(request)
            if not passes:
                bins.refused[0][-1] += 1
            if old is None:
                continue
            passed = old.passes(request)
            if not passed:
                bins.refused[1][-1] += 1
            if passed is not passes:
                (self._let_in if passes else self._refused)[key] += 1

    def result(self, log: LogFacts | None) -> PolicyReplay:
        """Return the results so far."""
        old = self._old
        return PolicyReplay(
            requests=self._requests.total(),
            clients=len(self._requests),
            new=self._new.effect(),
            old=None if old is None else old.effect(),
            newly_refused=None if old is None else self._change(self._refused),
            let_in=None if old is None else self._change(self._let_in),
            log=log,
            series=self._bins.series(),
        )

    def _change(self, changed: Counter[str]) -> Change:
        most = sorted(changed, key=lambda key: (-changed[key], key))[:SHOWN_CLIENTS]
        rows = (ChangedClient(key, self._requests[key], changed[key], self._errors[key]) for key in most)
        return Change(changed.total(), len(changed), tuple(rows))


class _Candidate:
    """A policy file under trial."""

    def __init__(self, file: str | Path, known: frozenset[str]) -> None:
        self._name = Path(file).name
        policy, self._skipped = replayable(read_source(file), known)
        self._limits = {
            rule.name: "; ".join(str(limit).removesuffix(f" as {limit.name}") for limit in rule.limits_for(NOBODY))
            for rule in policy.rules
        }
        self._trial = PolicyTrial(policy, by_user="user" in known)
        self._refused = 0

    def passes(self, request: Row) -> bool:
        passed = self._trial.passes(request)
        if not passed:
            self._refused += 1
        return passed

    def effect(self) -> PolicyEffect:
        trial = self._trial
        trial.finish()
        rules = (
            RuleEffect(
                name, self._limits[name], counts.matched, counts.refused, counts.shadowed, counts.observed,
                counts.delayed, counts.longest_delay / SECOND, len(counts.clients),
            )
            for name, counts in trial.rules.items()
        )  # fmt: skip
        return PolicyEffect(self._name, tuple(rules), self._refused, trial.denied, self._skipped, trial.forgotten)
