"""How a Redis store is reached: URLs, ready clients, rights, settings; and what there is without redis-py."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from headgate import AsyncLimiter, InvalidCall, Limiter, StoreError
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock, reset_all
from tests.support import ROOT
from tests.support.remote import patient
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server(tcp=True, password="p@ss/w#rd?") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.client().flushall()
    return running


CLIENTS: dict[str, Callable[[Server], Any]] = {
    "plain": lambda server: redis.Redis("127.0.0.1", server.port, password=server.password),
    "decoding": lambda server: redis.Redis.from_url(server.url, decode_responses=True),
    "new protocol": lambda server: redis.Redis.from_url(server.url, protocol=3),
    "socket": lambda server: redis.Redis(unix_socket_path=server.socket_path, password=server.password),
    "database": lambda server: redis.Redis.from_url(server.url, db=3),
    "async": lambda server: redis.asyncio.Redis(host="127.0.0.1", port=server.port, password=server.password),
    "async decoding": lambda server: redis.asyncio.Redis.from_url(server.url, decode_responses=True),
}


def test_stores_that_are_dropped_close_their_connections(server):
    """Without `close`, and whichever of connection and socket the collector reaches first: no socket is left open."""
    before = server.info("clients")["connected_clients"]
    for _ in range(30):
        assert Limiter("5/hour", store=patient(server.url)).hit("k").degraded is False
    gc.collect()
    wait_until(lambda: server.info("clients")["connected_clients"] == before, "their connections are closed")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_ready_client_will_do(server, name):
    """For either limiter, whichever kind it is. It is only looked at: its own connections stay as they are."""
    client = CLIENTS[name](server)
    store = RedisStore(client, deadline=5.0, connect_timeout=5.0)
    assert Limiter("10/hour", store=store, on_error="raise").hit("k", 4).remaining == 6

    async def hit() -> int:
        decision = await AsyncLimiter("10/hour", store=store, on_error="raise").hit("k", 4)
        await store.aclose()
        return decision.remaining

    assert asyncio.run(hit()) == 2
    db = 3 if name == "database" else 0
    assert list(server.info("keyspace")) == [f"db{db}"]
    assert not client.connection_pool._available_connections


def test_a_client_is_as_good_as_a_url(server):
    """`Limiter(store=client)`; and what is no client is refused."""
    with Limiter("10/hour", store=CLIENTS["plain"](server)) as limiter:
        assert isinstance(limiter.store, RedisStore)
    for stranger in (object(), redis, 3):
        with pytest.raises(InvalidCall, match="redis-py client"):
            Limiter("10/hour", store=stranger)
        with pytest.raises(InvalidCall, match="redis-py client"):
            RedisStore(stranger)


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis], ids=["sync", "async"])
def test_a_client_of_a_derived_class_will_do(server, kind):
    """As apps have them that log or trace their commands. Those without a server, as of fakeredis, will not."""
    derived = type("Traced", (kind,), {"__module__": "shop.cache"})
    client = derived(host="127.0.0.1", port=server.port, password=server.password)
    with Limiter("10/hour", store=client, on_error="raise") as limiter:
        assert limiter.hit("k", 4).remaining == 6
    fake = type("FakeRedis", (kind,), {"__module__": "fakeredis._clients"})()
    connection = type("FakeConnection", (), {"__module__": "fakeredis._connection"})
    pooled = kind()
    pooled.connection_pool.connection_class = connection
    for refused in (lambda: Limiter("10/hour", store=fake), lambda: RedisStore(fake), lambda: RedisStore(pooled)):
        with pytest.raises(InvalidCall, match="fakeredis has no server that a store could ask: use memory://"):
            refused()


def test_a_limiter_closes_what_it_opened(server):
    """Its connections are gone, those of a store that was handed in are not; both may be used again."""
    clients = server.info("clients")["connected_clients"]
    url = f"{server.url}?deadline=5&connect_timeout=5"
    with Limiter("10/hour", store=url, on_error="raise") as limiter:
        limiter.hit("k")
        assert server.info("clients")["connected_clients"] == clients + 1
    wait_until(lambda: server.info("clients")["connected_clients"] == clients, "the connection is closed")
    assert limiter.hit("k").remaining == 8
    limiter.close()
    store = RedisStore(url)
    with Limiter("10/hour", store=store, on_error="raise") as limiter:
        limiter.hit("k")
    assert server.info("clients")["connected_clients"] == clients + 1
    store.close()
    wait_until(lambda: server.info("clients")["connected_clients"] == clients, "the connection is closed")


def test_options_may_stand_in_the_url():
    """They do what they say; an argument outweighs them."""
    with Server() as server, ThreadPoolExecutor() as pool:
        url = f"{server.url}?deadline=0.2&connect_timeout=5&remember_refusals=0&nodes=5"
        limiter = Limiter("10/hour", store=url)
        store = RedisStore(url, deadline=30.0)
        patient = Limiter("10/hour", store=store, on_error="raise")
        limiter.hit("k", 10)
        assert not patient.hit("k")
        server.client().flushall()
        assert patient.hit("k", 8).remaining == limiter.hit("k", 0).remaining == 2  # nothing was remembered
        server.pause()
        waiting, start = pool.submit(patient.hit, "k", 0), time.monotonic()
        assert limiter.hit("k", 2).degraded and not limiter.hit("k", 1)  # a fifth of ten
        assert time.monotonic() - start >= 0.4
        server.resume()
        assert waiting.result(30)
        limiter.close()
        store.close()


def test_a_closed_store_that_is_used_again_is_whole_again():
    """It also notices a server that went away and came back."""
    with Server() as server:
        store = RedisStore(server.url, deadline=5.0)
        limiter = Limiter("10/hour", store=store, on_error="raise")
        limiter.hit("k")
        store.close()
        limiter.hit("k")
        server.kill()
        for _ in range(5):
            with pytest.raises(StoreError):
                limiter.hit("k")
        server.start()
        allowed: list[bool] = []

        def hit() -> bool:
            try:
                allowed.append(limiter.hit("k").allowed)
            except StoreError:
                return False
            return True

        wait_until(hit, "the server is found again", 5)
        assert allowed == [True]
        store.close()


WITHOUT_REDIS = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "redis":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import headgate, headgate.testing
assert headgate.Limiter("1/day").hit("k")
try:
    headgate.Limiter("1/day", store="redis://h")
except headgate.StoreError as error:
    print(error)
"""


def test_without_redis_py_everything_else_works():
    """The error of a Redis store says what to install."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_REDIS], capture_output=True, text=True, check=True)
    assert "pip install '.[redis]' in a clone of Headgate" in ran.stdout


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction", "volatile-ttl"])
def test_a_server_that_forgets_anything_is_warned_of_once(server, caplog, policy):
    """Once a store, however many connections it makes, of either kind."""
    server.command("CONFIG", "SET", "maxmemory-policy", policy)
    store = RedisStore(server.url, deadline=5.0, connect_timeout=5.0)
    limiter = Limiter("10/hour", store=store, on_error="raise")
    with caplog.at_level(logging.WARNING, logger="headgate"):
        limiter.hit("k")
        store.close()
        limiter.hit("k")

        async def hit() -> None:
            await AsyncLimiter("10/hour", store=store, on_error="raise").hit("k")
            await store.aclose()

        asyncio.run(hit())
    told = [record.getMessage() for record in caplog.records if record.name == "headgate"]
    assert [policy in message and "noeviction" in message for message in told] == [True] * policy.startswith("allkeys")


def test_clear_finds_every_key_of_a_namespace_and_no_other(server):
    """Many keys are found, and blocks; keys of others stay, even such that look alike."""
    store = RedisStore(server.url, deadline=5.0, connect_timeout=5.0, clock=ManualClock(1e9))
    limiters = {name: Limiter("1/hour block 1h", store=store, namespace=name, on_error="raise") for name in "ab"}
    for number in range(1_500):
        limiters["a"].hit(f"key {number}")
    for limiter in limiters.values():
        limiter.hit("k")
        assert not limiter.hit("k")
    for name in ("hg1:", "hg1:{x}", "other", "hg1:{" + 22 * "A" + "}"):
        server.client().set(name, "1")
    assert server.client().dbsize() == 1_500 + 2 * 2 + 4
    reset_all(limiters["a"])
    assert server.client().dbsize() == 2 + 4
    assert limiters["a"].hit("k") and not limiters["b"].hit("k")


RIGHTS = ["+eval", "+evalsha", "+time", "+get", "+set", "+getrange", "+setrange", "+pexpire", "+del"]
EVERYTHING = [
    *(f"10/hour by {kind}" for kind in ("token-bucket", "fixed-window", "sliding-window", "sliding-log")),
    "10/hour by sliding-window/6 block 1h; 10/hour; 10/hour by sliding-log",
]


def use_everything(server: Server, rights: list[str]) -> None:
    """Every verb of every algorithm works for a user with these commands and no others."""
    server.command("ACL", "SETUSER", "limiter", "reset", "on", ">pw", "~hg1:*", *rights)
    server.client().flushall()
    server.command("SCRIPT", "FLUSH")
    for clock in (None, ManualClock(1e9)):
        with closing(patient(server.url.replace("://", "://limiter:pw@"), clock)) as store:
            for text in EVERYTHING:
                limiter = Limiter(text, store=store, on_error="raise")
                limiter.peek("k")
                spent = limiter.hit("k", 4)
                limiter.take_up_to("k", 9)
                limiter.hit("k")
                limiter.refund(spent)
                limiter.refund("k", 1)
                for seconds in (600, -1e7):
                    if clock:
                        clock.advance(seconds)
                    limiter.hit("k", 2)
                limiter.reset("k")


def test_the_documented_rights_are_enough_and_none_is_needless():
    """Of the line in docs/redis.md; `clear` needs one more."""
    page = (ROOT / "docs" / "redis.md").read_text()
    (line,) = re.findall(r"^ACL SETUSER headgate on >password resetkeys ~hg1:\* resetchannels -@all (.+)$", page, re.M)
    assert line.split() == RIGHTS
    with Server() as server:
        use_everything(server, RIGHTS)
        for right in RIGHTS:
            with pytest.raises(StoreError, match=r"[Pp]ermission"):
                use_everything(server, [each for each in RIGHTS if each != right])
        server.command("ACL", "SETUSER", "limiter", *RIGHTS)
        with closing(RedisStore(server.url.replace("://", "://limiter:pw@"), deadline=5.0)) as store:
            with pytest.raises(StoreError, match="not cleared"):
                store.clear("default")
            server.command("ACL", "SETUSER", "limiter", "+scan")
            store.clear("default")
