"""A budget of tokens in virtual time: reserving the prompt and the mean of answers uses it up, the maximum does not."""

from __future__ import annotations

import csv
import gzip
import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, cycle, islice
from typing import NamedTuple

import pytest

from headgate import Limiter, Reservation
from headgate.client.usage import Chat, UsageRequest
from headgate.clock import SECOND
from headgate.testing import ManualClock
from tests.support.traces import trace as trace_file

pytestmark = pytest.mark.engineless

MINUTES = 10
MAX_TOKENS = 4096


class Exchange(NamedTuple):
    """The real tokens of a request and of its answer."""

    prompt: int
    answer: int


class Attempt(NamedTuple):
    request: UsageRequest
    exchange: Exchange
    cost: int


class Fleet:
    """Workers that ask without a pause, one exchange after another; the first that waits asks for all of them.

    A prompt is up to a tenth more or less than a quarter of its characters. An answer takes half a second, and
    20 ms a token. Until the first answer, one request is in flight.
    """

    def __init__(self, exchanges: Iterable[Exchange], per_minute: int, burst_seconds: int, by_mean: bool) -> None:
        self.clock = ManualClock()
        self.burst = per_minute * burst_seconds // 60
        self.limiter = Limiter(f"{per_minute}/minute burst {self.burst} as tokens", clock=self.clock)
        self.used = self.answers = 0
        self._chat, self._chance, self._exchanges = Chat(), random.Random(3), cycle(exchanges)
        self._by_mean = by_mean
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._asks_at = 0
        self._waiting: deque[Attempt] = deque()

    def run(self, workers: int, minutes: int) -> None:
        """Let the workers ask, and count the tokens of the answers that came in this time."""
        begun = self.clock.now_us()
        self._wait()
        left = workers - 1
        while self._events[0][0] <= begun + minutes * 60 * SECOND:
            at, _, happens = heapq.heappop(self._events)
            self.clock.advance((at - self.clock.now_us()) / SECOND)
            happens()
            while self.answers and left:
                left -= 1
                self._wait()

    def _at(self, us: int, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.now_us() + us, next(self._order), happens))

    def _wait(self) -> None:
        exchange = next(self._exchanges)
        text = "x" * int(exchange.prompt * self._chance.uniform(3.6, 4.4))
        body = {"model": "m", "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": text}]}
        request = self._chat.request(json.dumps(body).encode())
        units = request.units
        cost = units["tokens"] if self._by_mean else units["input_tokens"] + MAX_TOKENS
        self._waiting.append(Attempt(request, exchange, min(cost, self.burst)))
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            reservation = self.limiter.reserve("m", {"tokens": first.cost}, max_wait=0)
            if not reservation:
                self._asks_at = self.clock.now_us() + reservation.decision.retry_us
                self._at(reservation.decision.retry_us, self._ask_again)
                return
            self._waiting.popleft()
            self.used += sum(first.exchange)
            took = SECOND // 2 + SECOND // 50 * first.exchange.answer
            self._at(took, partial(self._answer, first, reservation))

    def _ask_again(self) -> None:
        if self.clock.now_us() >= self._asks_at:
            self._ask()

    def _answer(self, attempt: Attempt, held: Reservation) -> None:
        prompt, answer = attempt.exchange
        usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        reader = attempt.request.reader("application/json")
        reader.feed(json.dumps({"usage": usage}).encode())
        told = reader.close()
        assert told is not None and told["tokens"] == prompt + answer
        held.settle(tokens=told["tokens"])
        self.answers += 1
        self._ask()
        self._wait()


def made_up() -> Iterator[Exchange]:
    """Prompts and answers of very different lengths, as in conversations."""
    chance = random.Random(7)
    for _ in range(3_000):
        prompt, answer = chance.lognormvariate(5, 1.4), chance.lognormvariate(5, 1)
        yield Exchange(1 + min(8_000, int(prompt)), min(2_000, int(answer)))


def rows(prompt: str, answer: str) -> Callable[[Iterable[str]], Iterator[Exchange]]:
    """A reader of CSV with these columns."""
    return lambda lines: (Exchange(int(row[prompt]), int(row[answer])) for row in csv.DictReader(lines))


def objects(prompt: str, answer: str) -> Callable[[Iterable[str]], Iterator[Exchange]]:
    """A reader of lines of JSON with these fields."""
    return lambda lines: (Exchange(row[prompt], row[answer]) for row in map(json.loads, lines))


REAL = {
    "AzureLLMInferenceTrace_code.csv.gz": rows("ContextTokens", "GeneratedTokens"),
    "mooncake_conversation_trace.jsonl.gz": objects("input_length", "output_length"),
    "vtc-lmsys-27clients.csv.gz": rows("prompt_len", "output_len"),
}
MADE_UP = "made up"


def exchanges_of(trace: str) -> list[Exchange]:
    if trace == MADE_UP:
        return list(made_up())
    with gzip.open(trace_file(trace), "rt", encoding="utf-8") as lines:
        return list(islice(REAL[trace](lines), 4_000))


@pytest.mark.parametrize(
    ("trace", "per_minute", "burst_seconds", "by_mean", "by_maximum"),
    [
        (MADE_UP, 200_000, 6, 0.98, 0.33),
        ("vtc-lmsys-27clients.csv.gz", 200_000, 6, 0.97, 0.18),
        ("AzureLLMInferenceTrace_code.csv.gz", 600_000, 6, 0.99, 0.97),
        ("mooncake_conversation_trace.jsonl.gz", 2_000_000, 12, 0.97, 0.94),
    ],
)
def test_the_mean_of_answers_uses_a_budget_up(trace, per_minute, burst_seconds, by_mean, by_maximum):
    """Of the tokens that a budget allows, at least 95 % are used; with `max_tokens` reserved, as few as a fifth.

    Answers of the third trace are so short that even its maximum comes back in time; the fourth has longer answers
    than six seconds, and needs a larger burst.
    """
    exchanges = exchanges_of(trace)
    shares = []
    for reserves_mean in (True, False):
        fleet = Fleet(exchanges, per_minute, burst_seconds, reserves_mean)
        fleet.run(workers=128, minutes=MINUTES)
        shares.append(fleet.used * 100 // (per_minute * MINUTES + fleet.burst) / 100)
    assert shares == [by_mean, by_maximum]
