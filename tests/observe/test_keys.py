"""The keys refused most and busiest: bounded memory, bounded error; and the log of refusals."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter

import pytest

from headgate import Limiter, MemoryStore
from headgate.observe.merging import merged
from headgate.observe.refusal_log import RefusalLog
from headgate.observe.sketch import Listed, Sketch
from headgate.observe.snapshot import empty
from headgate.observe.snapshot_parts import key_list
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


def test_a_new_key_starts_with_the_count_of_the_key_that_it_replaces():
    """That count is its error, and no more: the lists of workers are useful only while errors are small."""
    sketch = Sketch(places=2, clock=lambda: 7.0)
    for key in "aabc":
        sketch.add("r", key)
    assert sketch.listed() == [Listed("r", "a", 2, 0, 7.0), Listed("r", "c", 2, 1, 7.0)]


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


def test_a_merged_list_has_the_longest_of_its_keys_and_the_first_start():
    """Of 1,001 keys the rarest is left out, and its count is the floor; workers count from the earliest start."""
    parts = [empty(0.0), empty(0.0)]
    for number, part in enumerate(parts):
        sketch = Sketch(places=2_000)
        for key in range(number, 1_001, 2):
            for _ in range(2 if key else 1):
                sketch.add("r", str(key))
        part["refused_keys"], part["started"] = key_list(sketch.listed()), 7.0 + number
    total = merged(parts, 9.0)
    assert ({one["key"] for one in total["refused_keys"]}, total["floors"]["refused"]) == (
        {str(key) for key in range(1, 1_001)},
        1,
    )
    assert total["started"] == 7.0


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


def edge(key="ip", pepper=None, **options):
    policy = {"rules": [{"name": "api", "key": key, "limits": "1/minute"}]} | ({"pepper": pepper} if pepper else {})
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


HASH = r"\\h[0-9a-f]{32}"
"""A hash in a key, as a pattern."""


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::7", "testclient"])
@pytest.mark.parametrize(
    ("key", "clear", "shown"),
    [
        ("ip", "{0}", HASH),
        ({"header": "x-team"}, r"\m{0}", r"\\m" + HASH),
        (["path", "user"], r"/a:b\p10.1.2.3|\m{0}", r"/a:b\\p10\.1\.2\.3\|\\m" + HASH),
        (["user", "user"], r"\m{0}|\m{0}", rf"(\\m{HASH})\|\1"),
        ([{"constant": "10.0.0.1"}, "ip"], "10.0.0.1|{0}", r"10\.0\.0\.1\|" + HASH),
        ({"constant": "a|10.0.0.1:80"}, "a|10.0.0.1:80", r"a\|10\.0\.0\.1:80"),
        (lambda view: "10.0.0.1:80|", "10.0.0.1:80|", r"10\.0\.0\.1:80\|"),
    ],
)
def test_addresses_and_only_addresses_are_hashed(caplog, key, clear, shown, address):
    """The part `ip`, and an address in place of a missing part, are hashed in lists and in the log; nothing else is."""
    client = "2001:db8::/64" if ":" in address else address
    for options, pattern in (({}, re.escape(clear.format(client))), ({"hash_addresses": True}, shown)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "headgate.refusals"):
            app = edge(key, **options)
            ask(app, 300, REMOTE_ADDR=address, PATH_INFO="/a:b|10.1.2.3")
        seen = app.snapshot()
        logged = [vars(line) for line in caplog.records if line.name == "headgate.refusals"]
        for listed in (*seen["refused_keys"], *seen["busiest_keys"], logged[0]):
            assert re.fullmatch(pattern, listed["key"]), listed["key"]
        assert len(seen["refused_keys"]) == len(seen["busiest_keys"]) == 1
        assert not options or client not in caplog.text.replace("10.0.0.1", "")


def test_hashes_of_addresses_are_keyed_with_the_pepper(monkeypatch):
    """With another pepper an address has another hash: an attacker without it cannot find the address by trying all."""
    found = set()
    for pepper in ("one pepper", "another pepper"):
        monkeypatch.setenv("PEPPER", pepper)
        app = edge(hash_addresses=True, pepper={"env": "PEPPER"})
        ask(app)
        found.add(app.snapshot()["refused_keys"][0]["key"])
    assert len(found) == 2


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
