"""A simulated incident in front of the payment API of `four-layers.yaml`: which layer fires when, and what each misses.

Time is virtual. The service has 40 workers, and a request takes 50 ms of one of them. Twenty customers send five
requests a second each, and a charge in between; then things go wrong, one after the other.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import MemoryStore
from headgate.clock import SECOND
from headgate.web.asgi import RateLimitMiddleware
from tests.support import ROOT
from tests.support.inside import set_shedder_time
from tests.support.virtual import SkewedClock, VirtualLoop

pytestmark = pytest.mark.engineless

yaml = pytest.importorskip("yaml")
FILE = ROOT / "docs" / "gallery" / "four-layers.yaml"
LAYERS = ("rate", "in-flight", "fleet", "workers", "adaptive")
WORKERS, WORK = 40, 0.05
CUSTOMERS = [f"203.0.113.{number}" for number in range(20)]
"""Addresses, which are their tokens too."""
STARTS = {"calm": 0, "failing": 2, "degraded": 5, "mended": 12, "loop": 20, "slow": 24, "crowd": 42, "busy": 48}
"""The second at which each phase begins."""
END = 108


def policy_of(*layers: str) -> dict[str, Any]:
    """Return the policy of the gallery with only these layers."""
    given: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(FILE.read_text())))
    given["rules"] = [rule for rule in given["rules"] if rule["name"] in (*layers, "strangers")]
    shed = given["shed"]
    if "adaptive" not in layers:
        shed["limit"] = 100_000
    for name in ("fleet", "workers"):
        if name not in layers:
            del shed[name]
    return given


class Incident:
    """The service, its clients, and what became of their requests by phase."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *layers: str) -> None:
        self.loop = VirtualLoop()
        self.free = asyncio.Semaphore(WORKERS)
        self.neighbour = 0.0
        """The part of the processor that others take."""
        clock = SkewedClock(self.loop, 0, 0)
        self.gate = RateLimitMiddleware(self._app, policy_of(*layers), store=MemoryStore(clock=clock))
        shedder = self.gate.shedder
        assert shedder is not None
        set_shedder_time(shedder, clock, lambda: self.loop.now * 1_000)
        self._used, self._used_at = 0, 0
        times = SimpleNamespace(perf_counter_ns=lambda: self.loop.now * 1_000, process_time_ns=self._cpu)
        monkeypatch.setattr("headgate.shed.signals.time", times)
        monkeypatch.setattr("headgate.shed.workers.random", random.Random(7).random)
        self.fired: dict[str, Counter[str]] = {phase: Counter() for phase in STARTS}
        """Refusals by the phase and their reason."""
        self.asked: Counter[tuple[str, str]] = Counter()
        self.served: Counter[tuple[str, str]] = Counter()
        """Requests that were answered within a second, by the phase and their kind."""
        self.slowest: Counter[str] = Counter()
        """The longest latency of a request that was served, in milliseconds, by the phase."""

    def _cpu(self) -> int:
        self._used += round((self.loop.now - self._used_at) * (0.3 + self.neighbour) * 1_000)
        self._used_at = self.loop.now
        return self._used

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        async with self.free:
            await asyncio.sleep(scope["seconds"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def send(self, kind: str, token: str, seconds: float = WORK) -> None:
        """Send one request, now."""
        self.loop.create_task(self._request(kind, token, seconds))

    async def _request(self, kind: str, token: str, seconds: float) -> None:
        phase = [name for name in STARTS if STARTS[name] * SECOND <= self.loop.now][-1]
        method, path = ("POST", "/v1/charges/7") if kind == "charge" else ("GET", "/v1/things")
        headers = [(b"authorization", token.encode()), *([(b"x-test", b"1")] if kind == "test" else [])]
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "client": (token, 4000)}
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        began = self.loop.now
        self.asked[phase, kind] += 1
        await self.gate({**scope, "seconds": seconds}, lambda: None, keep)  # type: ignore[return-value]
        if sent[0]["status"] == 200:
            self.served[phase, kind] += self.loop.now - began <= SECOND
            self.slowest[phase] = max(self.slowest[phase], (self.loop.now - began) // 1_000)
        else:
            body = json.loads(sent[1]["body"])
            self.fired[phase][body.get("reason") or body["violated-policies"][0]] += 1

    def every(self, seconds: float, start: float, end: float, *requests: Any) -> None:
        """Plan requests at equal distances; each is for the next of these arguments."""
        count = round((end - start) / seconds)
        for number in range(count):
            self.loop.at(round((start + number * seconds) * SECOND), self.send, *requests[number % len(requests)])

    def run(self) -> Incident:
        """Run the whole incident."""
        for start, end, rarer in [(0, 48, 1), (48, END, 10)]:
            self.every(0.01 * rarer, start, end, *[("normal", name) for name in CUSTOMERS])
            self.every(0.0503 * rarer, start, end, *[("charge", name) for name in CUSTOMERS])
        self.every(0.1003, 0, END, *[("test", name) for name in CUSTOMERS])
        self.loop.at(2 * SECOND, self._fail)
        self.loop.at(12 * SECOND, self._mend)
        self.every(0.0007, 20, 22.5, ("loop", "198.51.100.1"))
        self.every(0.1, 24, 30, ("slow", "198.51.100.2", 10.0))
        self.every(0.0008, 42, 45, *[("crowd", f"192.0.2.{number}") for number in range(250)])
        self.loop.at(48 * SECOND, self._be_busy, 0.7)
        self.loop.run(END * SECOND)
        self.loop.let_go()
        return self

    def _be_busy(self, part: float) -> None:
        self.neighbour = part

    def _fail(self) -> None:
        """Take all workers but two away: a dependency has lost its replicas."""
        for _ in range(WORKERS - 2):
            self.loop.create_task(self.free.acquire())

    def _mend(self) -> None:
        for _ in range(WORKERS - 2):
            self.free.release()

    def part(self, phase: str, kind: str) -> float:
        """Return the part of requests that were served in time."""
        return self.served[phase, kind] / self.asked[phase, kind]


@cache
def incident(*layers: str) -> Incident:
    """Run the incident with these layers."""
    with pytest.MonkeyPatch.context() as patch:
        return Incident(patch, *layers).run()


def test_each_layer_fires_when_it_is_its_turn():
    """No layer refuses in calm times; then each refuses what it is there for, and charges are always served."""
    full = incident(*LAYERS)
    assert {phase: sorted(fired) for phase, fired in full.fired.items()} == {
        "calm": [],
        "failing": ["queue"],  # the adaptive limit: this process serves fewer
        "degraded": ["queue"],
        "mended": ["queue"],  # the limit grows again
        "loop": ["in-flight", "queue", "rate"],
        "slow": ["in-flight"],
        "crowd": ["fleet"],
        "busy": ["workers"],
    }
    assert {phase: full.part(phase, "charge") for phase in STARTS} == dict.fromkeys(STARTS, 1.0)
    assert full.part("busy", "test") < 0.95


def test_a_loop_gets_no_more_than_its_rate():
    """A client in a loop is served 500 requests at once and 100 a second."""
    assert incident(*LAYERS).served["loop", "loop"] <= 500 + 2.5 * 100


def test_the_adaptive_limit_keeps_requests_short():
    """With two workers left, the places of the fleet are a queue of 0.8 s; the adaptive limit keeps to half of that."""
    assert incident(*LAYERS).slowest["degraded"] <= 300


@pytest.mark.soak
def test_no_layer_does_the_work_of_another():
    """Each layer alone misses phases, in which charges, or customers that do nothing wrong, are not served."""
    missed = {}
    for layer in LAYERS:
        alone = incident(layer)
        missed[layer] = [
            phase
            for phase, kind in (("degraded", "charge"), ("loop", "normal"), ("slow", "normal"), ("crowd", "charge"))
            if alone.part(phase, kind) < 0.95
        ]
        if not alone.fired["busy"]:
            missed[layer].append("busy")
    assert missed == {
        "rate": ["degraded", "slow", "crowd", "busy"],
        "in-flight": ["degraded", "crowd", "busy"],
        "fleet": ["loop", "busy"],
        "workers": ["degraded", "slow", "crowd"],
        "adaptive": ["slow", "busy"],
    }


@pytest.mark.soak
def test_no_other_layer_alone_stops_a_loop_or_keeps_requests_short():
    """Only the rate counts requests, and only the adaptive limit follows the workers that are left."""
    served = {layer: incident(layer).served["loop", "loop"] for layer in LAYERS}
    slowest = {layer: incident(layer).slowest["degraded"] for layer in LAYERS}
    assert [layer for layer, count in served.items() if count <= 500 + 2.5 * 100] == ["rate"]
    assert [layer for layer, milliseconds in slowest.items() if milliseconds <= 250] == ["adaptive"]
    assert slowest["fleet"] >= 800
