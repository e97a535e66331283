"""The keys refused most and busiest: bounded memory, bounded error; and the log of refusals."""

from __future__ import annotations

import logging
import random
from collections import Counter

from headgate import Limiter, MemoryStore
from headgate.observe.merging import merged
from headgate.observe.parts import key_list
from headgate.observe.refusal_log import RefusalLog
from headgate.observe.sketch import Sketch
from headgate.observe.snapshot import empty
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware


def test_every_key_above_a_thousandth_is_listed_within_its_error():
    """100,000 keys by a heavy-tailed law: no heavy key is missing, and no count is off by more than its error."""
    chance = random.Random(1)
    exact: Counter[str] = Counter()
    sketch = Sketch()
    for _ in range(100_000):
        key = str(int(chance.paretovariate(0.7)))
        exact[key] += 1
        sketch.add("r", key)
    listed = {one.key: one for one in sketch.listed()}
    assert len(listed) == 1_000
    assert {key for key, count in exact.items() if count > 100} <= listed.keys()
    assert all(one.count - one.error <= exact[key] <= one.count for key, one in listed.items())
    assert all(count <= sketch.floor for key, count in exact.items() if key not in listed)


def test_lists_of_workers_are_merged_within_their_errors():
    """Three workers with small lists: the true sum is between `count - error` and `count`."""
    chance, parts = random.Random(2), []
    exact: Counter[str] = Counter()
    for _ in range(3):
        sketch = Sketch(places=20)
        for _ in range(3_000):
            key = str(int(chance.paretovariate(1.0)))
            exact[key] += 1
            sketch.add("r", key)
        part = empty(0.0)
        part["refused_keys"] = key_list(sketch.listed())
        part["floors"]["refused"] = sketch.floor
        parts.append(part)
    total = merged(parts, 0.0)
    assert all(one["count"] - one["error"] <= exact[one["key"]] <= one["count"] for one in total["refused_keys"])
    listed = {one["key"] for one in total["refused_keys"]}
    assert all(count <= total["floors"]["refused"] for key, count in exact.items() if key not in listed)


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


def edge(key="ip", **options):
    policy = {"rules": [{"name": "api", "key": key, "limits": "1/minute"}]}
    return RateLimitMiddleware(hello, policy, store=MemoryStore(clock=ManualClock(1_000_000_020.0)), **options)


def ask(app, count=2, **environ):
    for _ in range(count):
        list(app({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7", **environ}, lambda *_: None))


def test_secrets_and_hashed_addresses_are_never_listed():
    """An API key appears as its hash; an address too, with `hash_addresses`; a long key is cut, and stays distinct."""
    app = edge({"header": "x-api-key"})
    ask(app, HTTP_X_API_KEY="hunter2")
    assert "hunter2" not in str(app.snapshot())
    app = edge(hash_addresses=True)
    ask(app)
    seen = app.snapshot()
    assert seen["refused_keys"][0]["count"] == 1
    assert "203.0.113" not in str(seen)


def test_the_busiest_keys_are_estimated_from_a_sample():
    """One client asks ten times as often as all others: it is first, and its estimate is near."""
    app = edge()
    ask(app, 20_000)
    first = app.snapshot()["busiest_keys"][0]
    assert first["key"] == "203.0.113.7"
    assert 15_000 < first["count"] < 25_000


def test_refusals_are_logged_once_a_minute_and_ten_a_second(caplog):
    """The first refusal of each of 30 keys in one second: ten lines; a second later, how many were left out."""
    now = [60.0]
    written = RefusalLog(lambda: now[0])
    limiter = Limiter("1/minute")
    limiter.hit("k")
    refused = limiter.hit("k")
    with caplog.at_level(logging.INFO, "headgate.refusals"):
        for _ in range(2):
            for key in range(30):
                written.write("api", f"k{key}", refused)
        assert len(caplog.records) == 10
        line = caplog.records[0]
        assert (line.rule, line.key, line.limit, line.retry_after) == ("api", "k0", "1/minute", refused.retry_after)
        now[0] = 61.0
        written.write("api", "k0", refused)  # in the same minute: nothing
        written.write("api", "new", refused)
    assert caplog.records[10].getMessage() == "40 refusals of other keys were left out"
    assert caplog.records[11].key == "new"
