"""Every policy of the gallery loads, and does what its comments say: a short story for each."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headgate import MemoryStore
from headgate.policy import Policy
from headgate.policy.forgeable_keys import inventions
from headgate.policy.source import read_source
from headgate.shed.estimators import Fixed
from headgate.testing import ManualClock
from headgate.web.asgi import RateLimitMiddleware
from tests.support import ROOT

pytestmark = pytest.mark.engineless

pytest.importorskip("yaml")
GALLERY = ROOT / "docs" / "gallery"
FILES = sorted(GALLERY.glob("*.yaml"))
GATEWAY = "10.0.0.1"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def retry_after(self) -> int | None:
        return int(self.headers["retry-after"]) if "retry-after" in self.headers else None

    @property
    def violated(self) -> list[str]:
        """The rules that bind, by what the refusal says."""
        named: list[str] = json.loads(self.body).get("violated-policies", [])
        return named


class Site:
    """An app behind a policy of the gallery. `status` and `headers` are what the app answers next."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.clock = ManualClock()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.called = 0
        store = MemoryStore(clock=self.clock)
        self.gate = RateLimitMiddleware(self._app, GALLERY / name, store=store, **arguments)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.called += 1
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"app"})

    async def request(self, method: str, path: str, ip: str, headers: dict[str, str], user: str | None) -> Reply:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": raw, "client": (ip, 4000)}
        if user is not None:
            scope["user"] = User(user)
        await self.gate(scope, receive, send)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], told, sent[1]["body"])

    def ask(self, method: str, path: str, ip: str = "203.0.113.9", *, user: str | None = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(self.request(method, path, ip, named, user))

    def statuses(self, count: int, *request: Any, **headers: Any) -> list[int]:
        return [self.ask(*request, **headers).status for _ in range(count)]


class User(NamedTuple):
    """What an authentication middleware puts into the scope."""

    identity: str
    is_authenticated: bool = True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_right_and_explained(path):
    """Each loads without a mistake, and begins by saying what it is against."""
    assert Policy.load(path).rules
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_login():
    """Only wrong passwords count; the sixth try waits ten minutes, whatever it brings."""
    site = Site("login.yaml")
    assert site.statuses(20, "POST", "/login") == [200] * 20
    site.status = 401
    assert site.statuses(5, "POST", "//login/") == [401] * 5
    refused = site.ask("POST", "/login")
    assert (refused.status, refused.retry_after, refused.violated) == (429, 600, [])
    assert "ratelimit" not in refused.headers
    site.clock.advance(599.9)
    assert site.ask("POST", "/login").retry_after == 1
    site.clock.advance(0.1)
    assert site.ask("POST", "/login").status == 401
    assert site.ask("POST", "/login", "198.51.100.7").status == 401
    assert site.ask("GET", "/login").status == 401


def test_login_by_a_patient_attacker():
    """Five a minute, without ever being refused: the day's limit ends it."""
    site = Site("login.yaml")
    site.status = 401
    for _ in range(10):
        assert site.statuses(5, "POST", "/login") == [401] * 5
        site.clock.advance(60)
    assert site.ask("POST", "/login").status == 429


def test_lockout():
    """Ten wrong passwords lock the client out of every page for an hour, but not of the health check."""
    site = Site("lockout.yaml")
    assert site.statuses(50, "GET", "/") == [200] * 50
    site.status = 401
    assert site.statuses(11, "POST", "/login") == [401] * 10 + [429]
    site.status = 200
    assert site.statuses(2, "GET", "/") == [429, 429]
    assert site.ask("GET", "/").retry_after == 3600
    assert (site.ask("GET", "/healthz").status, site.ask("GET", "/", "198.51.100.7").status) == (200, 200)
    site.clock.advance(3600)
    assert site.ask("GET", "/").status == 200


def test_credential_stuffing_on_one_account():
    """Every try comes from another address: the account is what is counted."""
    site = Site("credential-stuffing.yaml", trusted_proxies=["10.0.0.0/8"])
    site.status = 401
    tries = [site.ask("POST", "/accounts/ann/session", f"203.0.113.{last}") for last in range(11)]
    assert [reply.status for reply in tries] == [401] * 10 + [429]
    assert tries[-1].retry_after == 3600, "a log: 10 in any hour, and not 10 at once and 9 more"
    assert site.ask("POST", "/accounts/bob/session", "203.0.113.99").status == 401


def test_credential_stuffing_by_one_address_and_by_one_program(caplog):
    """One address with many accounts, and one program with many addresses that only the balancer can recognise."""
    site = Site("credential-stuffing.yaml", trusted_proxies=["10.0.0.0/8"])
    site.status = 401
    codes = [site.ask("POST", f"/accounts/{name}/session", "2001:db8::1").status for name in range(20)]
    refused = site.ask("POST", "/accounts/more/session", "2001:db8::2")
    assert (codes, refused.status, refused.retry_after) == ([401] * 20, 429, 3600)

    def tried(number: int, peer: str) -> Reply:
        forwarded = f"203.0.{number}.1"
        return site.ask("POST", f"/accounts/u{number}/session", peer, x_ja4="t13d", x_forwarded_for=forwarded)

    assert [tried(number, GATEWAY).status for number in range(30)] == [401] * 30
    found = tried(30, GATEWAY)
    assert (found.status, found.retry_after) == (429, None), "a rule that discloses nothing tells no wait"
    assert tried(31, "198.51.100.7").status == 401, "the header of a stranger was never sent"
    with caplog.at_level(logging.INFO, "headgate.policy"):
        site.status = 200
        for number in range(1000):
            assert tried(number + 40, "198.51.100.8").status == 200
    assert "rule site (observe) would refuse" in caplog.text


def test_scraping():
    """A browser may, a program without its cookie may less, and the office may everything."""
    site = Site("scraping.yaml")
    assert site.statuses(21, "GET", "/products/1", cookie="visit=1") == [200] * 20 + [429]
    program = [site.ask("GET", "/products/1", "198.51.100.7") for _ in range(11)]
    assert [reply.status for reply in program] == [200] * 10 + [429]
    assert program[-1].retry_after is None and "ratelimit" not in program[0].headers
    assert site.statuses(100, "GET", "/products/1", "10.1.2.3") == [200] * 100
    assert site.statuses(100, "GET", "/about") == [200] * 100


def test_scraping_that_is_copying():
    """A day's 2,000 copied in half an hour: then every page is empty, and looks like any other."""
    site = Site("scraping.yaml")
    replies = []
    for _ in range(2100):
        site.clock.advance(1)
        replies.append(site.ask("GET", "/products/1", cookie="visit=1"))
    assert {reply.status for reply in replies} == {200}
    assert 2000 <= site.called < 2060 and replies[site.called - 1].body == b"app"
    assert {reply.body for reply in replies[site.called :]} == {b"<html></html>"}
    assert replies[-1].headers == {"content-type": "text/html", "content-length": "13"}
    site.clock.advance(11 * 3600)
    assert site.ask("GET", "/products/1", cookie="visit=1").body == b"<html></html>"
    site.clock.advance(3600)
    assert site.ask("GET", "/products/1", cookie="visit=1").body == b"app"


def test_plans():
    """The plan of the gateway's header counts, that of anybody else does not."""
    site = Site("plans.yaml", trusted_proxies=["10.0.0.0/8"])

    def statuses(count: int, plan: str, peer: str = GATEWAY) -> list[int]:
        return site.statuses(count, "GET", "/v1/users", peer, x_plan=plan, x_customer=f"c-{plan}")

    assert statuses(51, "enterprise") == [200] * 50 + [429], "a plan without a limit is still not the whole server"
    free = site.ask("GET", "/v1/users", GATEWAY, x_plan="free", x_customer="c-7")
    assert free.headers["ratelimit-policy"] == '"api.1";q=60;w=60, "api.2";q=1000;w=86400'
    assert free.headers["x-ratelimit-remaining"] == "59"
    assert statuses(11, "enterprise", "198.51.100.7") == [200] * 10 + [429]
    assert site.ask("GET", "/v1/status", "198.51.100.7").status == 200


def test_search():
    """Thirty lookups or three aggregations at once; an export that fails is given back."""
    site = Site("search.yaml")
    assert site.statuses(31, "GET", "/search") == [200] * 30 + [429]
    costly = [site.ask("POST", "/search", "198.51.100.7") for _ in range(4)]
    assert [reply.status for reply in costly] == [200, 200, 200, 429]
    assert (costly[-1].retry_after, costly[-1].violated) == (5, ["search"])
    assert site.ask("POST", "/search/export").status == 403
    site.status = 503
    assert site.statuses(10, "POST", "/search/export", user="ann") == [503] * 10
    site.status = 200
    assert site.statuses(5, "POST", "/search/export", user="ann") == [200] * 4 + [429]


def test_graphql():
    """The response says what a query cost. The bucket is overdrawn once, and the debt is waited for."""
    site = Site("graphql.yaml")
    site.headers = {"X-Query-Cost": "400"}
    assert site.statuses(3, "POST", "/graphql", user="ann") == [200] * 3
    refused = site.ask("POST", "/graphql", user="ann")
    assert (refused.status, refused.violated) == (429, ["points"])
    assert refused.retry_after == 724, "200 points of debt and the next one, at 1000 an hour"
    site.clock.advance(724)
    site.headers = {"X-Query-Cost": "nonsense"}
    assert site.ask("POST", "/graphql", user="ann").status == 200
    assert site.ask("POST", "/graphql", user="bob").status == 200


def test_webhooks():
    """One sender's storm is its own; what failed here is not counted, and what has no signature is soon refused."""
    site = Site("webhooks.yaml")
    site.status = 503
    assert set(site.statuses(310, "POST", "/hooks/shop", x_signature="s")) == {503}
    site.status = 200
    assert site.statuses(301, "POST", "/hooks/shop", x_signature="s")[-2:] == [200, 429]
    assert site.ask("POST", "/hooks/bank", x_signature="s").status == 200
    assert site.statuses(6, "POST", "/hooks/bank") == [200] * 5 + [429]
    site.clock.advance(3599)
    assert site.ask("POST", "/hooks/bank").status == 429
    assert site.ask("POST", "/hooks/bank", x_signature="s").status == 200


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_file_counts_only_by_what_a_client_can_invent(path):
    """`headgate policy check` has nothing to say about any of them."""
    source = read_source(path)
    assert list(inventions(source, Policy(source))) == []


def test_every_file_has_a_story():
    """Each policy of the gallery is tried out here, or in a file of its own."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_gallery*.py"))
    assert [path.name for path in FILES if f'Site("{path.name}"' not in source] == []


class Incident:
    """Requests to the payment API that stay under way until `end`."""

    def __init__(self) -> None:
        self.site = Site("four-layers.yaml")
        self.under_way: list[asyncio.Future[Reply]] = []
        self._ends = asyncio.Event()
        self._answer, self.site.gate.app = self.site.gate.app, self._slow

    async def _slow(self, scope: Any, receive: Any, send: Any) -> None:
        await self._ends.wait()
        await self._answer(scope, receive, send)

    async def send(self, count: int, path: str, *tokens: str, method: str = "GET", **headers: str) -> list[Reply]:
        """Send requests, by each token in turn; return those that were refused at once."""
        refused = []
        for at in range(count):
            asked = {"authorization": tokens[at % len(tokens)], **headers}
            request = asyncio.ensure_future(self.site.request(method, path, "203.0.113.9", asked, None))
            for _ in range(3):
                await asyncio.sleep(0)
            if request.done():
                refused.append(request.result())
            else:
                self.under_way.append(request)
        return refused

    async def quick(self, token: str, **headers: str) -> Reply:
        """Send one request after the incident, which ends at once."""
        await asyncio.sleep(0)  # in a turn of its own: requests that sit in the loop are shed
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.site.request("GET", "/v1/x", "203.0.113.9", {"authorization": token, **named}, None)

    async def end(self) -> list[int]:
        """Let the requests under way end; return their statuses."""
        self._ends.set()
        replies = await asyncio.gather(*self.under_way)
        self.under_way.clear()
        return [reply.status for reply in replies]


def test_four_layers():
    """Each layer refuses what the others let pass: a loop of one client, its slow requests, all of them, busy work."""

    async def story() -> None:
        incident = Incident()
        shedder = incident.site.gate.shedder
        assert shedder is not None
        shedder.estimator = Fixed(1_000)  # as if it had found that there is room
        held = await incident.send(21, "/v1/reports", "a")
        assert [reply.violated for reply in held] == [["in-flight"]], "few requests, each slow: the rate sees nothing"
        full = await incident.send(20, "/v1/reports", "b", "c")
        assert [json.loads(reply.body)["reason"] for reply in full] == ["fleet"] * 8, "32 of 40: no client is at fault"
        assert {reply.status for reply in full} == {503}
        charges = await incident.send(9, "/v1/charges/7", "d", method="POST")
        assert [json.loads(reply.body)["reason"] for reply in charges] == ["fleet"], "the reserve is for charges"
        assert await incident.end() == [200] * 40
        quick = [await incident.quick("e") for _ in range(501)]
        assert [reply.status for reply in quick] == [200] * 500 + [429], "nothing is under way: only the rate sees them"
        assert shedder._workers is not None
        shedder._workers._next_look, shedder._workers._amount.value = 1 << 62, 1.0  # busy for 148 s
        test = await incident.quick("f", x_test="1")
        assert (test.status, json.loads(test.body)["reason"]) == (503, "workers"), "no limit is reached"
        assert (await incident.quick("f")).status == 200
        assert shedder.stats().in_flight == 0

    asyncio.run(story())
