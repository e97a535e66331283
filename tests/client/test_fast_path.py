"""The shortest way of a request: a place is free at once, and its answer tells nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from headgate.client import Budget, Report, Retries
from headgate.client.dialects import read, tells_nothing
from headgate.client.httpx import Transport
from headgate.client.server_limits import ServerResponse
from headgate.errors import BudgetExhausted
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from tests.support.virtual_api import Lost, Response, SimulatedRequest

PLAIN = {"Content-Type": "application/json", "Date": "Tue, 17 Nov 2026 03:00:00 GMT"}


def lost() -> Response:
    raise Lost


class Api:
    """Answers requests of threads, and notes when they came."""

    def __init__(self, limits: str = "100/second", **options: Any) -> None:
        self.clock = ManualClock()
        self.budget = Budget(limits, clock=self.clock, **options)
        self.answer: Callable[[], Response] = lambda: Response(200, PLAIN)
        self.sent: list[int] = []

    def ask(self, method: str = "GET") -> Any:
        return self.budget.run(self.Request(self, method))

    class Request(SimulatedRequest):
        """A request to it."""

        api: Any

        def send(self) -> Any:
            self.api.sent.append(self.api.clock.us)
            return self.api.answer()

        def close(self, response: Any) -> Any:
            return None


def test_a_request_that_need_not_wait_takes_few_calls():
    """Each function that is called costs about half a microsecond beside a real request: six of the client are."""
    answer = httpx2.Response(200, headers=PLAIN)

    class Inner:
        def handle_request(self, request: Any) -> httpx2.Response:
            return answer

    transport = Transport(Budget("1000000/second", clock=ManualClock()), Inner())
    request = httpx2.Request("GET", "https://api.example/items")
    for _ in range(10):
        transport.handle_request(request)
    calls: Counter[str] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        calls[frame.f_code.co_qualname] += event == "call" and "/headgate/client/" in frame.f_code.co_filename

    sys.setprofile(profile)
    transport.handle_request(request)
    sys.setprofile(None)
    assert +calls == Counter(
        (
            "Transport.handle_request",
            "_Request.__init__",
            "FastPath.run",
            "_Request.send",
            "_Request.head",
            "tells_nothing",
        )
    )


def test_requests_that_went_at_once_count_for_the_retry_budget():
    """200 passed, then 60 fail: a tenth of all these requests is sent again."""
    api = Api("1000000/second", retries=Retries(base=0.001, ceiling=0.001))
    for _ in range(200):
        api.ask()
    api.answer = lambda: Response(503, PLAIN)
    for _ in range(60):
        api.ask()
    report = api.budget.report()
    assert report == Report(sent=286, retried=26)


@pytest.mark.parametrize("fails", [lambda: Response(500, PLAIN), lost])
def test_a_server_that_begins_to_fail_is_asked_less(fails: Callable[[], Response]):
    """The throttle hears of failures of requests that went at once: of 400, at least 300 are refused here."""
    api = Api("1000000/second", retries=Retries(attempts=1))
    api.ask()
    api.ask()
    api.answer = fails
    for _ in range(400):
        with suppress(BudgetExhausted, Lost):
            api.ask()
    report = api.budget.report()
    assert report == Report(sent=402 - report.refused_here, refused_here=report.refused_here)
    assert 300 <= report.refused_here <= 370


def test_a_request_without_a_place_waits_for_its_turn():
    """After the burst of one, the places of `5/second` come every 204.2 ms."""
    api = Api("5/second")
    for _ in range(4):
        api.ask()
    assert api.sent == [0, 204_200, 408_400, 612_600]


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (Response(429, {**PLAIN, "Retry-After": "7"}), 7_000_000),
        (Response(200, {**PLAIN, "RateLimit-Policy": '"x";q=1;w=10', "RateLimit": '"x";r=0;t=10'}), 10_205_000),
    ],
)
def test_an_answer_that_tells_something_ends_the_calm(answer: Response, after: int):
    """The tenth answer refuses, or tells a limit of 1 in 10 s: the next requests keep to it."""
    api = Api("1000000/second")
    for _ in range(9):
        api.ask()
    answers = iter([answer])
    api.answer = lambda: next(answers, Response(200, PLAIN))
    before = api.clock.us
    api.ask()
    api.ask()
    api.ask()
    assert api.sent[9] == before
    assert api.sent[-1] - before >= after


def test_a_pause_of_another_process_is_found_in_the_store():
    """Both budgets are calm, and one is told to pause: the other asks the store, and sends 5 s later."""
    api = Api()
    store = MemoryStore(clock=api.clock)
    other = Budget("100/second", store=store)
    api.budget = Budget("100/second", store=store, retries=Retries(attempts=1))
    api.ask()
    other.run(Api.Request(api))
    other.run(Api.Request(api))
    answers = iter([Response(429, {"Retry-After": "5"})])
    api.answer = lambda: next(answers, Response(200, PLAIN))
    api.clock.advance(1)
    refused_at = api.clock.us
    assert api.ask().status == 429
    assert other.run(Api.Request(api)).status == 200
    assert api.sent[-2:] == [refused_at, refused_at + 5_000_000]


def test_fields_that_no_dialect_reads_tell_nothing():
    """In any case, as str or bytes, as a mapping or pairs; a date alone says nothing either."""
    silent: tuple[Any, ...] = (PLAIN, [*PLAIN.items()], [(b"DATE", b"x"), (b"Server", b"x")], httpx2.Headers(PLAIN), {})
    told = {**PLAIN, "x-RateLimit-Remaining": "3"}
    telling: tuple[Any, ...] = (
        told,
        [*told.items()],
        httpx2.Headers(told),
        {"Retry-After": "3"},
        {"X-Rate-Limit": ""},
    )
    assert [tells_nothing(headers) for headers in (*silent, *telling)] == [True] * 5 + [False] * 5
    assert [read(200, headers, 0) for headers in silent] == [ServerResponse(200)] * 5


def test_pairs_may_come_from_an_iterator():
    """It is read once."""

    def pairs() -> Iterator[tuple[str, str]]:
        yield "date", "x"
        yield "retry-after", "3"

    assert read(200, pairs(), 0) == ServerResponse(200, retry_after=3.0)


def test_a_server_that_invents_names_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch):
    """Names that tell nothing are remembered, up to a bound; what tells is found behind them."""
    monkeypatch.setattr("headgate.client.dialects.response.MOST_SILENT", 0)
    for number in range(2_000):
        assert tells_nothing({f"x-invented-{number}": "1", "x" * 100: "2"})
    assert not tells_nothing({"x-invented-1999": "1", "ratelimit": "2"})
