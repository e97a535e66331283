"""What the tests of permits have in common: limiters of every home, those that are awaited used like the others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.faults import PATIENT
from tests.support.homes import LATER, PATIENCE, Waited, limiters_of
from tests.support.inside import renewal_of
from tests.support.servers import Server

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
LONG = "100 weeks"
"""A lease that does not end while a test moves its clock."""


class Block:
    """`async with`, as `with`: a permit, a guard or a slot."""

    def __init__(self, block: Any, runner: asyncio.Runner) -> None:
        self._block, self.runner = block, runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def __bool__(self) -> bool:
        return bool(self._block)

    def __call__(self, function: Any) -> Any:
        """A guard's function, waited for."""
        guarded = self._block(function)
        return lambda *given: self.runner.run(guarded(*given))

    def __enter__(self) -> Any:
        entered = self.runner.run(self._block.__aenter__())
        return self if entered is self._block else entered

    def __exit__(self, *error: Any) -> None:
        self.runner.run(self._block.__aexit__(*error))

    def release(self, outcome: Any = "success") -> bool:
        return bool(self.runner.run(self._block.release(outcome)))


class Awaited(Waited):
    """An `AsyncLimiter`: every method waited for, and its blocks entered by `with`."""

    def permit(self, *asked: Any, **options: Any) -> Block:
        """Taken at once, as a `Limiter` does."""
        return Block(self.runner.run(_taken(self.thing.permit(*asked, **options))), self.runner)

    def limited(self, *asked: Any, **options: Any) -> Block:
        return Block(self.thing.limited(*asked, **options), self.runner)

    def beside(self, *limits: str, **options: Any) -> Awaited:
        return Awaited(AsyncLimiter(*limits, store=self.thing.store, on_error="raise", **options), self.runner)


async def _taken(permit: Any) -> Any:
    return await permit


@contextmanager
def flying(kind: str) -> Iterator[Callable[..., Any]]:
    """Limiters of a home: `redis`, or `redis awaited`. Unless told otherwise their time stands still."""
    with limiters_of(kind) as make:

        def limiter(*limits: str, clock: ManualClock | None = None, **options: Any) -> Any:
            made = make(*limits, clock=clock or ManualClock(LATER), **options)
            return Awaited(made.thing, made.runner) if isinstance(made, Waited) else made

        yield limiter


@contextmanager
def flying_at(server: Server, awaited: bool) -> Iterator[Callable[..., Any]]:
    """Limiters on a server, by its own clock."""
    with asyncio.Runner() as runner:
        store = RedisStore(server.url, deadline=PATIENT, connect_timeout=PATIENT, remember_refusals=0)

        def limiter(*limits: str) -> Any:
            if awaited:
                return Awaited(AsyncLimiter(*limits, store=store, on_error="raise"), runner)
            return Limiter(*limits, store=store, on_error="raise")

        yield limiter
        runner.run(store.aclose())


def beside(limiter: Any, *limits: str, **options: Any) -> Any:
    """Another limiter on the same store."""
    if isinstance(limiter, Awaited):
        return limiter.beside(*limits, **options)
    return Limiter(*limits, store=limiter.store, on_error="raise", **options)


def held(limiter: Any, key: str = "k") -> int:
    """Units in flight."""
    seen = limiter.peek(key, 0)
    return int(seen.limit - seen.remaining)


def renewed(limiter: Any) -> list[str]:
    """The keys whose permits are renewed: on a server, and nowhere else."""
    return [name.key for name in renewal_of(limiter.store).held] if isinstance(limiter.store, RedisStore) else []


def renew(limiter: Any, *periods: int) -> None:
    """Renew on a server what a limiter's store holds there, or what has these periods, as its thread does in time."""
    renewal = renewal_of(limiter.store)
    renewal.renew([permit for permit in renewal.held.values() if not periods or permit.limit.period in periods])


def left(limiter: Any, key: str = "k") -> list[int]:
    """What remains under each limit."""
    return [verdict.remaining for verdict in limiter.peek(key, 0).verdicts]


def in_child(work: Callable[[], object]) -> str:
    """What a forked child's work comes to, as text; a child that hangs is killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writes, repr(work()).encode())
        except BaseException as error:
            os.write(writes, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    end = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)  # the next look finds it ended
        time.sleep(0.002)
    with os.fdopen(reads, "rb") as told:
        return told.read().decode() or "nothing: it was killed"


class Asks:
    """Counts what a limiter asks its home, and when; may fail on the way."""

    def __init__(self, limiter: Any, clock: ManualClock | None = None) -> None:
        self.at: list[int] = []
        self.fail: Callable[[], BaseException | None] = lambda: None
        self._reserve, self._clock = limiter._reserve, clock
        limiter._reserve = self._awaited if isinstance(limiter, AsyncLimiter) else self._asked

    def _count(self) -> None:
        self.at.append(self._clock.us if self._clock else 0)
        assert len(self.at) < 1000, "it asks without end"
        error = self.fail()
        if error is not None:
            raise error

    def _asked(self, *question: Any) -> Any:
        self._count()
        return self._reserve(*question)

    async def _awaited(self, *question: Any) -> Any:
        self._count()
        return await self._reserve(*question)


async def one(permit: Any) -> Any:
    return await permit
