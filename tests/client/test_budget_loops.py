"""A budget whose callers are in several event loops and threads, some of which end badly."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx2
import pytest

from headgate import Budget
from headgate.client.httpx import Transport
from tests.support.transports.httpx import PLAIN

pytestmark = pytest.mark.engineless


def client(budget: Budget) -> httpx2.AsyncClient:
    answer = httpx2.MockTransport(lambda request: httpx2.Response(200))
    return httpx2.AsyncClient(transport=Transport(budget, answer), verify=PLAIN)


async def ask(budget: Budget) -> int:
    async with asyncio.timeout(30):
        return (await client(budget).get("https://api.example/")).status_code


def test_a_loop_that_is_closed_while_callers_wait_stops_no_other_loop():
    """Its callers can never leave the line: callers of the next loop do not wait for them."""
    budget = Budget("20/second")
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *of_error: None)  # asyncio would print a line for each task
    loop.run_until_complete(ask(budget))
    tasks = [loop.create_task(ask(budget)) for _ in range(10)]
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert not all(task.done() for task in tasks)
    assert asyncio.run(ask(budget)) == 200


def test_callers_that_are_thrown_away_with_their_loop_say_nothing(monkeypatch):
    """A coroutine that is collected while it waits cannot await: it gives nothing back, and raises nothing."""
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    budget = Budget("20/second")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ask(budget))
    waiting = [ask(budget) for _ in range(3)]
    for each in waiting:
        loop.run_until_complete(_begin(each))
    loop.close()
    del waiting, each
    gc.collect()
    assert [str(each.exc_value) for each in unraisable] == []


async def _begin(waiting: Any) -> None:
    """Run a coroutine until it waits, and leave it there."""
    waiting.send(None)
