"""Steps: generators that yield what a gate gave and are sent its decision; threads and event loops share them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from headgate.engine import Decision

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""Yields a decision, or something to await for one; returns what it came to."""


def run(steps: Steps[T]) -> T:
    """Run steps whose gates answer at once."""
    try:
        given = next(steps)
        while True:
            given = steps.send(given)
    except StopIteration as done:
        value: T = done.value
        return value


async def run_awaiting(steps: Steps[T]) -> T:
    """Run steps whose gates may have to be awaited."""
    try:
        given = next(steps)
        while True:
            if given is not None and not isinstance(given, Decision):
                try:
                    given = await given
                except BaseException as error:
                    given = steps.throw(error)
                    continue
            given = steps.send(given)
    except StopIteration as done:
        value: T = done.value
        return value
