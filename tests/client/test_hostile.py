"""A hostile server: whatever it tells, no foreign exception is raised, waits have caps, and memory is bounded."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx2
import pytest

from headgate import Budget, BudgetExhausted
from headgate.client import Outgoing, Retries, chat
from headgate.client.httpx import Transport
from headgate.testing import ManualClock

pytestmark = pytest.mark.engineless

NAMES = [
    "Retry-After", "Retry-After-Ms", "RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining",
    "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Reset-After",
    "X-RateLimit-Bucket", "X-RateLimit-Resource", "x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-reset",
    "grpc-retry-pushback-ms", "X-Shopify-Shop-Api-Call-Limit", "x-should-retry", "Date", "X-GitHub-Request-Id",
]  # fmt: skip
VALUES = [
    "", "0", "-1", "1", "60", "NaN", "inf", "-inf", "1e308", "9" * 400, "0x10", "1_000", "\uff11\uff12", "1,2", '"',
    '"x";r=', '"x";r=0;t=9999999999', '"x";q=0;w=0', '"x";q=1;w=1', "limit=1, remaining=0, reset=99999999",
    "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "1999-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "6m0s", "99999d", "true", "false", "40/40", "1/0",
    "5" * 100_000, "a" * 1_000_000, ";" * 5_000, "(" * 5_000,
]  # fmt: skip
CAP = 120.0 + 60.0
"""The last retry begins within 120 s, and its turn comes within 60 s more."""


def seconds_of(budget: Budget, clock: ManualClock, answers: Iterator[httpx2.Response]) -> float:
    """Send one request; return how long its caller waited."""
    began = clock.now()
    transport = Transport(budget, httpx2.MockTransport(lambda request: next(answers)))
    with httpx2.Client(transport=transport) as http, suppress(BudgetExhausted):
        http.get("https://api.example/")
    return clock.now() - began


@pytest.mark.parametrize("status", [200, 429, *(pytest.param(each, marks=pytest.mark.soak) for each in (403, 503))])
@pytest.mark.parametrize("name", NAMES)
def test_no_broken_field_breaks_a_caller(name, status):
    """Each value of each field, in each status: a response or `BudgetExhausted`, within the caps."""
    for value in VALUES:
        clock = ManualClock(1_800_000_000)
        budget = Budget("100/second", clock=clock)
        response = httpx2.Response(status, headers=[(name.encode(), value.encode())])
        assert seconds_of(budget, clock, itertools.repeat(response)) <= CAP, (name, value[:50])


def test_no_mixture_of_fields_breaks_a_caller():
    """Two thousand answers with fields of several dialects at once, to a budget that learns from all of them."""
    chance = random.Random(7)
    clock = ManualClock(1_800_000_000)
    budget = Budget(clock=clock, retries=Retries(longest_wait=5, in_all=10))

    def answers() -> Iterator[httpx2.Response]:
        while True:
            fields = [(name, chance.choice(VALUES[:-4])) for name in chance.sample(NAMES, 5)]
            headers = [(name.encode(), value.encode()) for name, value in fields]
            yield httpx2.Response(chance.choice([200, 200, 403, 429, 503]), headers=headers)

    stream = answers()
    for _ in range(2_000):
        assert seconds_of(budget, clock, stream) <= 10 + 5
        clock.advance(86_400)
    assert all(len(limits) <= 8 for limits in budget.report().learned.values())


def test_a_lie_about_what_remains_costs_no_more_than_its_window():
    """A server that says 0 remain and admits all the same: the caller waits until the told reset, and goes on."""
    clock = ManualClock(1_800_000_000)
    budget = Budget("100/minute", clock=clock)
    lie = httpx2.Response(200, headers={"RateLimit": '"x";r=0;t=30', "RateLimit-Policy": '"x";q=100;w=60'})
    waits = [seconds_of(budget, clock, itertools.repeat(lie)) for _ in range(5)]
    assert max(waits) <= 30.1


def test_keys_are_bounded(monkeypatch):
    """A caller that names a new host in every request keeps the state of a bounded number of them."""
    monkeypatch.setattr("headgate.client.key_states.MOST_KEYS", 16)
    clock = ManualClock(1_800_000_000)
    told = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "60"}
    budget = Budget(clock=clock)
    transport = Transport(budget, httpx2.MockTransport(lambda request: httpx2.Response(200, headers=told)))
    with httpx2.Client(transport=transport) as http:
        for number in range(100):
            http.get(f"https://h{number}.example/")
    assert len(budget.report().learned) <= 16


def test_a_redirect_to_another_host_is_a_call_of_that_host():
    """The budget of the first host is not charged for the second."""
    clock = ManualClock(1_800_000_000)
    keys: list[str] = []

    def host(request: Outgoing) -> str:
        keys.append(request.host)
        return request.host

    budget = Budget("1/second", clock=clock, key=host)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "a.example":
            return httpx2.Response(302, headers={"Location": "https://b.example/"})
        return httpx2.Response(200)

    with httpx2.Client(transport=Transport(budget, httpx2.MockTransport(answer)), follow_redirects=True) as http:
        assert http.get("https://a.example/").status_code == 200
    assert keys == ["a.example", "b.example"]
    assert clock.now() == 1_800_000_000


@contextmanager
def raw_server(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each connection with the next of these bytes, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen: list[bytes] = []

        def serve() -> None:
            for answer in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    seen.append(connection.recv(65_536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", seen
    thread.join(10)


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
QUICK = Retries(base=0.001, ceiling=0.001)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00" * 100, b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 429 No\r\nRetry-After: " + b"9" * 1_000_000 + b"\r\n\r\n"],
)
def test_an_answer_that_is_no_http_is_a_lost_connection(answer):
    """A GET is sent once more, and the caller gets the good answer."""
    budget = Budget("100/second", retries=QUICK)
    with raw_server(answer, GOOD) as (url, seen), httpx2.Client(transport=Transport(budget)) as http:
        assert http.get(url).text == "ok"
    assert len(seen) == 2
    assert budget.report().retried == 1


def test_a_post_whose_connection_is_lost_is_not_sent_twice():
    """The server may have processed it: the caller gets the library's own error."""
    budget = Budget("100/second", retries=QUICK)
    with raw_server(b"", GOOD) as (url, seen), httpx2.Client(transport=Transport(budget)) as http:
        with pytest.raises(httpx2.TransportError):
            http.post(url, content=b"once")
        assert len(seen) == 1
        assert http.post(url, content=b"more").text == "ok"


def test_a_body_that_is_cut_is_the_library_s_own_error():
    """The caller has the response already: nothing is retried, and tokens stay reserved."""
    budget = Budget("100/second; 6000/minute as tokens", usage=chat, retries=QUICK)
    with (
        raw_server(CUT) as (url, _),
        httpx2.Client(transport=Transport(budget)) as http,
        pytest.raises(httpx2.TransportError),
    ):
        http.post(url, json={"model": "m", "messages": []})
    assert budget.report().units == {}
    assert budget.report().sent == 1
