"""A contestant: what is set up, which call is timed, and the proof that the call does its work.

Calls are kept as text and compiled into the loop that times them, as `timeit` does: nothing stands between the loop and
the call, and the report shows the very words that were timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

Names = dict[str, Any]

KEY = "user:42"
PERIOD_WEEKS = 52
LARGE = 10_000_000
"""A limit no timed run uses up: one unit drains in 3.1 s, so a run that is refused stays refused as well."""
LARGEST_LOG = 1_000_000
SMALL = 20
"""The limit of the proof: so many of so many and five more are admitted."""
OVER = 5

TIMED = """
{kind} loop(count, {names}):
    start = perf_counter_ns()
    for _ in repeat(None, count):
        answer = {call}
    return perf_counter_ns() - start, bool({yes})
"""
TRIAL = """
{kind} loop(count, {names}):
    verdicts = []
    for _ in repeat(None, count):
        answer = {trial}
        verdicts.append(bool({yes}))
    return verdicts
"""
NEW_KEYS = """
{kind} loop(count, {names}):
    start = perf_counter_ns()
    for number in range(count):
        key = f"user:{{number}}"
        answer = {call}
    return perf_counter_ns() - start, bool({yes})
"""
NEW_KEYS_ONE_BY_ONE = """
{kind} loop(spans, {names}):
    for number in range(len(spans)):
        key = f"user:{{number}}"
        start = perf_counter_ns()
        answer = {call}
        spans[number] = perf_counter_ns() - start
    return bool({yes})
"""
SECOND_YES = """
{kind} loop(count, {names}):
    admitted = 0
    for number in range(count):
        key = f"user:{{number}}"
        answer = {call}
        admitted += bool({yes})
    return admitted
"""
KNOWN_KEYS = """
{kind} loop(keys, {names}):
    start = perf_counter_ns()
    for key in keys:
        answer = {call}
    return perf_counter_ns() - start, bool({yes})
"""


class WorkloadError(Exception):
    """A contestant did not do the work it was to be timed at."""


class MissingError(Exception):
    """Something a contestant needs is not on this machine."""


@dataclass(frozen=True)
class Contestant:
    """`make(amount)` gives the names that `call` uses, with a limit of that amount in 52 weeks."""

    name: str
    make: Callable[[int], Names]
    call: str
    yes: str = "answer"
    """Whether the answer was a yes, as an expression."""
    trial: str = ""
    """The call of the proof, where the timed one would wait instead of refusing."""
    drain: Callable[[Names, int], object] | None = None
    """Uses the whole limit up, for a contestant that is timed at refusing."""
    amount: int = LARGE
    most: int = LARGE // 2
    """Hits of one timed run, at most."""
    limits: bool = True
    """False for the empty calls: there is nothing to prove."""

    @property
    def is_async(self) -> bool:
        return is_async(self.call)

    def compile(self, template: str) -> Callable[..., Any]:
        """The function of a template, with the call written into it."""
        return compiled(template, self.make(SMALL), self.call, yes=self.yes, trial=self.trial or self.call)


def is_async(call: str) -> bool:
    return call.startswith("await ")


def compiled(template: str, names: Iterable[str], call: str, **words: str) -> Callable[..., Any]:
    kind = "async def" if is_async(call) else "def"
    source = template.format(kind=kind, names=", ".join(names), call=call, **words)
    made: Names = {"repeat": repeat, "perf_counter_ns": perf_counter_ns}
    exec(source, made)
    return made["loop"]


def expect(done: bool, contestant: Contestant, what: str) -> None:
    """The workload is asserted in words, and also under `python -O`."""
    if not done:
        raise WorkloadError(f"{contestant.name}: {what}")
