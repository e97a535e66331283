"""Times that a response tells: the instants of `x-ratelimit-epoch`, and waits of one client and of many."""

from __future__ import annotations

import pytest

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import LATER, asgi, plain, still

pytestmark = pytest.mark.engineless


def limited(limits: str, store: MemoryStore, **more: object) -> RateLimitMiddleware:
    return RateLimitMiddleware(plain, {"rules": [{"name": "api", "key": "ip", "limits": limits}], **more}, store=store)


def test_an_instant_is_told_by_the_clock_of_the_store():
    """A store that was given a clock decides by it, and tells by it when a limit is whole again."""
    clock = ManualClock(LATER)
    app = limited("1/minute", MemoryStore(clock=clock), headers="x-ratelimit-epoch")
    assert asgi(app).fields["x-ratelimit-reset"] == f"{LATER + 60:.0f}"
    clock.advance(3_600)
    assert asgi(app).fields["x-ratelimit-reset"] == f"{LATER + 3_660:.0f}"


def test_an_instant_is_told_by_the_machine_as_it_is_set_now(monkeypatch):
    """A machine whose clock was set after the start tells the new time; waits go on by the steady counter."""
    app = limited("1/minute", MemoryStore(), headers="x-ratelimit-epoch")
    asgi(app)
    monkeypatch.setattr("headgate.clock.time.time_ns", lambda: 2_000_000_000 * 10**9)
    assert asgi(app).fields["x-ratelimit-reset"] in {"2000000059", "2000000060"}


@pytest.fixture
def one_second(monkeypatch):
    """Every refusal of a test falls into one second."""
    monkeypatch.setattr("headgate.web.responder.monotonic", lambda: 7.5)


def test_a_client_that_hammers_is_told_its_exact_wait(one_second):
    """However often one client is refused, the wait is the same: one key is no crowd."""
    app = limited("1/minute", still())
    asgi(app)
    assert {asgi(app).fields["retry-after"] for _ in range(50)} == {"60"}


def test_many_clients_are_told_to_come_back_one_after_the_other(one_second):
    """From the 21st key that is refused in a second on, waits are spread, and none is shorter."""
    app = limited("1/minute", still())
    clients = [(f"198.51.100.{number}", 4711) for number in range(60)]
    for client in clients:
        asgi(app, client=client)
    waits = [int(asgi(app, client=client).fields["retry-after"]) for client in clients]
    assert waits[:20] == [60] * 20
    assert min(waits) == 60 and len(set(waits[20:])) > 5
