"""Steps that are written once, as a generator of what to do next, and done by a thread or by an event loop.

The generator is sent what came of each step, or thrown the error; it returns what all of them came to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def run(steps: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Do the steps in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                given = do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(given)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_awaiting(steps: Generator[S, Any, T], do: Callable[[S], Awaitable[Any]]) -> T:
    """Do the steps in the running event loop."""
    try:
        step = next(steps)
        while True:
            try:
                given = await do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(given)
    except StopIteration as end:
        value: T = end.value
        return value
