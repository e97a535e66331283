"""A simulated provider of a language model, in virtual time: it counts requests and tokens by rules of its own."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from itertools import cycle
from random import Random
from typing import Any, NamedTuple

from headgate.client import Budget, Report, Usage
from headgate.clock import MINUTE
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import LoopClock, Response, SimulatedRequest

MAX_TOKENS = 4096


class Exchange(NamedTuple):
    """The real tokens of a request and of its answer."""

    prompt: int
    answer: int


class ExactLog:
    """At most `amount` units in any minute."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._log: deque[tuple[int, int]] = deque()
        self._sum = 0

    def fits(self, now: int, units: int) -> bool:
        while self._log and self._log[0][0] <= now - MINUTE:
            self._sum -= self._log.popleft()[1]
        return self._sum + units <= self._amount

    def charge(self, now: int, units: int) -> None:
        self._log.append((now, units))
        self._sum += units


class WholeBucket:
    """A bucket as large as the limit, which fills up in a minute, as providers have."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._level = float(amount)
        self._at = 0

    def fits(self, now: int, units: int) -> bool:
        self._level = min(self._amount, self._level + (now - self._at) * self._amount / MINUTE)
        self._at = now
        return units <= self._level

    def charge(self, now: int, units: int) -> None:
        self._level -= units


class Limits(NamedTuple):
    """Units a minute, and how the provider counts them."""

    kind: Callable[[int], ExactLog | WholeBucket]
    tokens: int = 200_000
    requests: int = 500


class SimulatedModel:
    """One model. A request is charged its real tokens when it arrives; a refused one is charged nothing."""

    def __init__(self, loop: VirtualLoop, limits: Limits) -> None:
        self.loop = loop
        self.used = self.admitted = self.refused = 0
        self._requests, self._tokens = limits.kind(limits.requests), limits.kind(limits.tokens)

    async def answer(self, exchange: Exchange) -> Response:
        """Answer after half a second, and 20 ms a token."""
        await asyncio.sleep(0.02)
        now, units = self.loop.now, sum(exchange)
        if not (self._requests.fits(now, 1) and self._tokens.fits(now, units)):
            self.refused += 1
            return Response(429, {"retry-after": "1"})
        self._requests.charge(now, 1)
        self._tokens.charge(now, units)
        self.used += units
        self.admitted += 1
        await asyncio.sleep(0.48 + 0.02 * exchange.answer)
        return Response(200, {"content-type": "application/json"})


class Read(NamedTuple):
    """A response whose body was read; its caller awaits the end."""

    response: Response
    end: Any


class ModelRequest(SimulatedRequest):
    """A request whose prompt has up to a tenth more or less tokens than a quarter of its characters."""

    def __init__(self, model: SimulatedModel, exchange: Exchange, chance: Random) -> None:
        self.headers = {}
        self.method = "POST"
        self._model, self._exchange = model, exchange
        text = "x" * int(exchange.prompt * chance.uniform(3.6, 4.4))
        body = {"model": "m", "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": text}]}
        self.body = json.dumps(body).encode()

    def send(self) -> Any:
        return self._model.answer(self._exchange)

    def watch(self, response: Any, feed: Callable[[bytes], None], end: Callable[[], Any]) -> Any:
        prompt, answer = self._exchange
        usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        feed(json.dumps({"usage": usage}).encode())
        return Read(response, end())


class Replayed(NamedTuple):
    """What came of a trace."""

    share: float
    """Of the tokens that were allowed in the time."""
    admitted: int
    """Requests that were admitted in the time."""
    refused: int
    counted: int
    """The tokens that the provider has counted, those of answers after the time included."""
    reports: tuple[Report, ...]
    """Of each process."""

    @property
    def report(self) -> Report:
        """That of the only process."""
        (report,) = self.reports
        return report


def replay(
    exchanges: Iterable[Exchange],
    limits: Limits,
    usage: Usage,
    minutes: int,
    workers: int = 128,
    processes: int = 1,
    patience: Callable[[Random], float] | None = None,
) -> Replayed:
    """Let workers ask without a pause, one exchange after another, so that demand always exceeds the limits.

    Each process has a budget of its own, all of them on one store. With `patience`, a caller is cancelled after so many
    seconds, wherever its call is then.
    """
    loop = VirtualLoop()
    model = SimulatedModel(loop, limits)
    words = f"{limits.requests}/minute as requests; {limits.tokens}/minute as tokens"
    store = MemoryStore(clock=LoopClock(loop))
    budgets = [Budget(words, usage=usage, store=store) for _ in range(processes)]
    left, chance, end = cycle(exchanges), Random(3), minutes * MINUTE

    async def call(budget: Budget) -> None:
        response = await budget.run_async(ModelRequest(model, next(left), chance))
        if isinstance(response, Read):
            await response.end

    async def work(budget: Budget) -> None:
        while loop.now < end:
            if patience is None:
                await call(budget)
                continue
            task = loop.create_task(call(budget))
            await asyncio.wait([task], timeout=patience(chance))
            task.cancel()
            await asyncio.wait([task])

    for number in range(workers):
        loop.create_task(work(budgets[number % processes]))
    try:
        loop.run(end)
        share, admitted = model.used / (limits.tokens * minutes), model.admitted
        loop.run(end + 10 * MINUTE)
    finally:
        loop.let_go()
    return Replayed(share, admitted, model.refused, model.used, tuple([budget.report() for budget in budgets]))
