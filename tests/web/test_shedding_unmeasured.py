"""Requests that an idle load shedder does not measure: an ASGI middleware serves them without a permit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.shed import current_class
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import get, plain
from tests.support.homes import LATER
from tests.support.inside import set_shedder_time

pytestmark = pytest.mark.engineless


def unmeasured(app: Any = plain, *rules: Any, **shed: Any) -> Any:
    """An app whose shedder, of three places, measures nothing; it counts the permits that are taken all the same.

    Its time stands still: on a busy machine, a request would be late in its event loop, and take a permit.
    """
    gate = RateLimitMiddleware(app, {"rules": list(rules), "shed": {"limit": 3, "timeout": 0, **shed}})
    shedder: Any = gate.shedder
    clock = ManualClock(LATER)
    set_shedder_time(shedder, clock, lambda: clock.us * 1_000)
    shedder.estimator.idle_until = 1 << 62
    taken = shedder.taken = []
    permit = shedder.permit

    def noted(name: str, **more: Any) -> Any:
        taken.append(name)
        return permit(name, **more)

    shedder.permit = noted
    return gate


def numbers(gate: Any) -> tuple[int, int, int]:
    """Return the requests in flight, those admitted, and the permits that were taken."""
    stats = gate.shedder.stats()
    return stats.in_flight, stats.admitted, len(gate.shedder.taken)


def test_requests_are_served_without_a_permit():
    """They are counted while they are served, and views know their class."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((current_class(), numbers(gate)))
        await plain(scope, receive, send)

    gate = unmeasured(app, classes={"critical": {"path": "/pay"}})

    async def story() -> None:
        assert [(await get(gate, "GET", path)).status for path in ("/", "/pay")] == [200, 200]
        assert current_class() is None

    asyncio.run(story())
    assert seen == [("sheddable_plus", (1, 1, 0)), ("critical", (1, 2, 0))]
    assert numbers(gate) == (0, 2, 0)


def test_a_full_service_refuses_and_waits_as_with_permits():
    """The fourth request takes a permit, and finds none."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/":
            await ends.wait()
        await plain(scope, receive, send)

    async def story() -> None:
        held = [asyncio.ensure_future(get(gate)) for _ in range(3)]
        await asyncio.sleep(0)
        assert ((await get(gate)).status, numbers(gate)) == (503, (3, 3, 1))
        ends.set()
        assert [each.status for each in await asyncio.gather(*held)] == [200] * 3
        assert (await get(gate)).status == 200

    ends, gate = asyncio.Event(), unmeasured(app)
    asyncio.run(story())
    assert numbers(gate) == (0, 4, 1)


@pytest.mark.parametrize("error", [LookupError, TimeoutError, asyncio.CancelledError])
def test_errors_and_cancellation_leave_no_place_taken(error):
    """Before the response and after its start."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    async def story() -> None:
        for path in ("/", "/late"):
            with pytest.raises(error):
                await get(gate, "GET", path)

    gate = unmeasured(app)
    asyncio.run(story())
    assert numbers(gate) == (0, 2, 0)


def test_rules_decide_after_the_shedder():
    """A refusal by a rule gives the place back; a request without an address takes steps, and is counted once."""
    gate = unmeasured(plain, {"name": "api", "key": "ip", "limits": "2/hour"})

    async def story() -> None:
        answers = [await get(gate) for _ in range(3)]
        assert [each.status for each in answers] == [200, 200, 429]
        assert [each.fields.get("ratelimit") for each in answers[:2]] == ['"api";r=1;t=1800', '"api";r=0;t=3600']
        assert numbers(gate) == (0, 3, 0)
        assert (await get(gate, client=None)).status == 200
        assert numbers(gate) == (0, 4, 1)

    asyncio.run(story())


def test_an_exempt_request_takes_no_place():
    """An exempt request takes no permit either, whether the service is full or not."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((current_class(), numbers(gate)))
        await plain(scope, receive, send)

    gate = unmeasured(app, exempt={"path": "/healthz"})
    asyncio.run(get(gate, "GET", "/healthz"))
    assert seen == [(None, (0, 0, 0))]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_mode_that_changes_under_way_changes_nothing_for_places_that_are_taken(mode):
    """A request that began without a permit ends; the next one takes a permit in the new mode."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        gate.shedder.mode = mode
        await plain(scope, receive, send)

    gate = unmeasured(app)
    asyncio.run(get(gate))
    assert numbers(gate) == (0, 1, 0)
    asyncio.run(get(gate))
    assert numbers(gate) == (0, 2, 1)
