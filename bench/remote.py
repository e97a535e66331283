"""A remote: a contestant whose state is in a server, and a visit: one that is set up there and proven.

Limits are 100 in an hour for every key: names and values are as long as in use, and none is used up where all are to be
admitted. Every answer of every run is looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, NamedTuple

from bench.contestant import OVER, SMALL, Names, WorkloadError, compiled, is_async
from bench.server import Server

AMOUNT = 100
HOUR = 3_600
CONNECTIONS = 512
"""More than any contestant has calls at once: a pool of redis-py that is not full is the fastest of its pools."""
COUNTED = """
{kind} loop(keys, {names}):
    counted = 0
    start = perf_counter_ns()
    for key in keys:
        answer = {call}
        if {yes}:
            counted += 1
    return start, perf_counter_ns(), counted
"""
VERDICTS = """
{kind} loop(keys, {names}):
    verdicts = []
    for key in keys:
        answer = {call}
        verdicts.append(bool({yes}))
    return verdicts
"""

Opened = AbstractContextManager[Names] | AbstractAsyncContextManager[Names]


@dataclass(frozen=True)
class Remote:
    """`open(url, amount)` gives the names that `call` uses, with a limit of that amount in an hour for each `key`."""

    name: str
    open: Callable[[str, int], Opened]
    call: str
    yes: str = "answer"
    """Whether the answer was a yes, and the server's, as an expression."""
    no: str = "not answer"
    same: str = ""
    """The algorithm of headgate that does the same work."""
    atomic: bool = True
    """Whether a decision is one script or one command, so that no crash or other client comes between its parts."""
    limits: bool = True
    """False for the empty script: there is nothing to prove."""

    @property
    def is_async(self) -> bool:
        return is_async(self.call)


class Lap(NamedTuple):
    start: int
    end: int
    counted: int

    @property
    def span(self) -> int:
        return self.end - self.start


class Visit:
    """A remote that is set up at a server."""

    def __init__(self, remote: Remote, server: Server, names: Names) -> None:
        self.remote, self.server, self.names = remote, server, names
        self.yes, self.no = self._loop(remote.yes), self._loop(remote.no)

    def _loop(self, counted: str) -> Callable[..., Any]:
        return compiled(COUNTED, self.names, self.remote.call, yes=counted)

    async def admit(self, keys: Sequence[str]) -> Lap:
        """One hit after the other, in one task; all are admitted."""
        return self.all_of(keys, Lap(*await resolved(self.yes(keys, **self.names))), "admitted")

    async def refuse(self, keys: Sequence[str]) -> Lap:
        return self.all_of(keys, Lap(*await resolved(self.no(keys, **self.names))), "refused")

    def all_of(self, keys: Sequence[str], lap: Lap, how: str) -> Lap:
        self.expect(lap.counted == len(keys), f"of {len(keys)} hits the server {how} {lap.counted}")
        return lap

    async def verdicts(self, keys: Sequence[str]) -> list[bool]:
        loop = compiled(VERDICTS, self.names, self.remote.call, yes=self.remote.yes)
        found: list[bool] = await resolved(loop(keys, **self.names))
        return found

    def expect(self, done: bool, what: str) -> None:
        if not done:
            raise WorkloadError(f"{self.remote.name}: {what}")


async def resolved(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


@asynccontextmanager
async def visiting(remote: Remote, server: Server, amount: int = AMOUNT) -> AsyncIterator[Visit]:
    """One task opens, hits and closes: some clients ask for that."""
    async with AsyncExitStack() as stack:
        yield Visit(remote, server, await entered(stack, remote.open(server.url, amount)))


async def entered(stack: AsyncExitStack, opened: Opened) -> Names:
    if isinstance(opened, AbstractAsyncContextManager):
        return await stack.enter_async_context(opened)
    return stack.enter_context(opened)


async def prove(remote: Remote, server: Server) -> None:
    """A limit of 20 admits the first 20 of 25 quick hits and no other, and every one of these is seen by the server."""
    if not remote.limits:
        return
    async with visiting(remote, server, SMALL) as visit:
        verdicts = await visit.verdicts(["user:proof"] * (SMALL + OVER))
    what = f"of {SMALL + OVER} hits on a limit of {SMALL}, {sum(verdicts)} were admitted: {verdicts}"
    visit.expect(verdicts == [True] * SMALL + [False] * OVER, what)
    server.forget()


def user_keys(count: int, first: int = 100_000) -> list[str]:
    return [f"user:{number}" for number in range(first, first + count)]
