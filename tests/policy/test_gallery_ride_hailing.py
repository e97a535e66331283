"""The policy of the gallery for a ride-hailing service, request by request."""

from __future__ import annotations

import asyncio

import pytest

from headgate.waiting.timers import Timers
from tests.policy.test_gallery import Reply, Site
from tests.support.awaiting import awaited
from tests.support.inside import runtime_of

pytestmark = pytest.mark.engineless


def test_ride_hailing_riders_and_history():
    """Ten at once when the app opens, then five a second; fifty looks at the history are a minute's."""
    site = Site("ride-hailing.yaml")
    assert site.statuses(11, "GET", "/rider/home", user="ann") == [200] * 10 + [429]
    site.clock.advance(1)
    assert site.statuses(6, "GET", "/rider/home", user="ann") == [200] * 5 + [429]
    assert site.ask("GET", "/rider/home", user="ann").violated == ["rider"]
    history = site.statuses(10, "GET", "/rider/trips/7", user="bob")
    for _ in range(40):
        site.clock.advance(0.2)
        history.append(site.ask("GET", "/rider/trips/7", user="bob").status)
    assert history == [200] * 50
    site.clock.advance(0.2)
    assert site.ask("GET", "/rider/trips/7", user="bob").violated == ["history"]
    assert site.ask("GET", "/rider/home", user="bob").status == 200


class Road:
    """The location updates of a site, whose requests are held by the hand of its clock."""

    def __init__(self) -> None:
        self.site = Site("ride-hailing.yaml")
        runtime_of(self.site.gate).clock = self.site.clock
        runtime_of(self.site.gate).timers = Timers(self.site.clock)
        self.sent: list[asyncio.Future[Reply]] = []

    async def send(self, driver: int, updates: int) -> None:
        """A phone sends what it has kept."""
        path = f"/driver/{driver}/location"
        ask = self.site.request
        self.sent += [asyncio.ensure_future(ask("POST", path, "203.0.113.9", {}, None)) for _ in range(updates)]
        await asyncio.sleep(0)

    async def reached(self, at: float) -> int:
        """How many updates the app has seen at this instant."""
        self.site.clock.set(at)
        for _ in range(5):  # the clock rings, the timers wake, the requests go on
            await asyncio.sleep(0)
        return self.site.called

    async def refused(self) -> int:
        return [reply.status for reply in await asyncio.gather(*self.sent)].count(429)


@awaited
async def test_ride_hailing_a_driver_comes_out_of_a_tunnel():
    """Thirty updates at once: none is refused, and they reach the app one after the other, a third of a ms apart."""
    road = Road()
    start = road.site.clock.now()
    await road.send(7, 30)
    assert [await road.reached(start + ms / 1000) for ms in (0, 1, 2, 9)] == [1, 4, 7, 28]
    assert await road.reached(start + 0.010) == 30
    assert await road.refused() == 0


@awaited
async def test_ride_hailing_a_thousand_drivers_at_once():
    """Five updates each: the app sees 3,000 a second, however they come, and what is beyond 5,000 is refused."""
    road = Road()
    start = road.site.clock.now()
    for driver in range(1000):
        await road.send(driver, 5)
    await road.send(1000, 1)
    tenths = [await road.reached(start + tenth / 10 - 0.000001) for tenth in range(1, 18)]
    assert tenths == [*(300 * tenth for tenth in range(1, 17)), 5000]
    assert await road.refused() == 1


def test_ride_hailing_console_and_partners():
    """The console's window begins with the minute; a partner has never more than 100 in any 60 seconds."""
    site = Site("ride-hailing.yaml")
    site.clock.set(50)
    assert site.ask("GET", "/admin/trips").status == 403
    assert site.statuses(11, "GET", "/admin/trips", user="root") == [200] * 10 + [429]
    assert site.ask("GET", "/admin/trips", user="root").retry_after == 10
    site.clock.set(60)
    assert site.ask("GET", "/admin/trips", user="root").status == 200
    assert site.statuses(101, "GET", "/partner/rides", x_partner_key="k") == [200] * 100 + [429]
    site.clock.advance(59.999999)
    assert site.ask("GET", "/partner/rides", x_partner_key="k").status == 429
    site.clock.advance(0.000001)
    assert site.ask("GET", "/partner/rides", x_partner_key="k").status == 200
    assert site.ask("GET", "/partner/rides").status == 401


def test_ride_hailing_a_client_that_invents_keys():
    """Another key in each request: the app knows none of them, and the address has 20 tries a minute."""
    site = Site("ride-hailing.yaml")
    site.status = 401
    asked = [site.ask("GET", "/partner/rides", x_partner_key=f"guess-{number}") for number in range(21)]
    assert [reply.status for reply in asked] == [401] * 20 + [429]
    assert asked[-1].violated == ["partner-guess"]
    site.status = 200
    assert site.ask("GET", "/partner/rides", "198.51.100.7", x_partner_key="k").status == 200
