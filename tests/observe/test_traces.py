"""The keys refused most, of real traffic: against exact counts, over three workers; and under a flood of keys."""

from __future__ import annotations

from collections import Counter
from mmap import PAGESIZE
from pathlib import Path
from random import Random

import pytest

from headgate import MemoryStore
from headgate.lab import Log
from headgate.observe.merging import merged
from headgate.observe.text import exposition
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import plain_wsgi, wsgi
from tests.support.traces import trace

pytestmark = pytest.mark.engineless


def limited(limits: str, store: MemoryStore) -> RateLimitMiddleware:
    policy = {"rules": [{"name": "api", "key": "ip", "limits": limits}]}
    return RateLimitMiddleware(plain_wsgi, policy, store=store)


@pytest.mark.parametrize(
    ("name", "limit", "keys"),
    [
        ("nasa-http-1995-08-01.tsv.gz", "1/minute", 2_000),
        pytest.param("elastic-nginx_logs.log.gz", "1/4 weeks", 1_000, marks=pytest.mark.soak),
        pytest.param("apache-wordpress-2016.log.gz", "1/hour", 2_000, marks=pytest.mark.soak),
    ],
)
def test_every_key_above_a_thousandth_of_the_refusals_is_listed(name, limit, keys):
    """Refusals of more keys than there are places: no heavy key is missing, and no count is off by more than its error.

    The same holds for the sum of three workers that share the traffic.
    """
    fields = {"time": "time", "key": "host"} if name.endswith("tsv.gz") else None
    clock, exact, now = ManualClock(), Counter[str](), None
    store = MemoryStore(clock=clock)
    apps = [limited(limit, store) for _ in range(3)]
    for at, request in enumerate(Log([trace(name)], fields=fields)):
        if now is not None and request.time > now:
            clock.advance((request.time - now) / 1e6)
        now = request.time if now is None else max(now, request.time)
        if wsgi(apps[at % 3], REMOTE_ADDR=request.key).status == 429:
            exact[request.key] += 1
    total = merged([app.snapshot() for app in apps], 0.0)
    listed = {one["key"]: one for one in total["refused_keys"]}
    assert len(exact) > keys and len(listed) == 1_000
    heavy = {key for key, count in exact.items() if count * 1_000 > exact.total()}
    assert heavy and heavy <= listed.keys()
    assert all(one["count"] - one["error"] <= exact[key] <= one["count"] for key, one in listed.items())
    assert all(count <= total["floors"]["refused"] for key, count in exact.items() if key not in listed)
    assert total["rules"][0]["counts"]["refused"] == exact.total()


@pytest.mark.soak
def test_a_flood_of_a_million_keys_adds_no_series_and_no_memory():
    """1,000,000 random addresses are refused: the process is as large as after the first tenth, its text as long."""
    app, chance = limited("0/minute", MemoryStore(max_keys=10_000)), Random(4)

    def flood(count: int) -> None:
        for _ in range(count):
            assert wsgi(app, REMOTE_ADDR=".".join(map(str, chance.randbytes(4)))).status == 429

    flood(100_000)
    series, size = len(exposition(app.snapshot()).splitlines()), resident()
    flood(900_000)
    seen = app.snapshot()
    assert seen["rules"][0]["counts"]["refused"] == 1_000_000
    assert (len(seen["refused_keys"]), len(seen["busiest_keys"])) == (1_000, 1_000)
    assert len(exposition(seen).splitlines()) == series
    assert resident() - size < 2 * 2**20


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE
