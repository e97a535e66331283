"""Tests that are coroutines: decorators make tests of them that pytest can call."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Test = Callable[..., Awaitable[None]]
Run = Callable[..., None]


def awaited_by(run: Run, *wanted: str, gives: tuple[str, ...] = ()) -> Callable[[Test], Callable[..., None]]:
    """A decorator: `run` is called with the fixtures that it wants and with the test, which awaits what `run` gives.

    Every other parameter of the test is a fixture.
    """

    def decorate(test: Test) -> Callable[..., None]:
        own = [name for name in inspect.signature(test).parameters if name not in gives]

        @functools.wraps(test)
        def called(**fixtures: Any) -> None:
            rest = {name: fixtures[name] for name in own}
            run(*(fixtures[name] for name in wanted), lambda **given: test(**given, **rest))

        names = dict.fromkeys((*wanted, *own))
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        called.__signature__ = inspect.Signature(parameters)
        return called

    return decorate


def in_time(story: Callable[[], Awaitable[None]], seconds: float = 30.0) -> None:
    """In an event loop of its own, and not for ever."""

    async def main() -> None:
        async with asyncio.timeout(seconds):
            await story()

    asyncio.run(main())


awaited = awaited_by(in_time)
"""A test in an event loop of its own."""
