"""On the way to a server: names, addresses, handshakes. One deadline holds for all of it, called or awaited."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headgate import Limiter, StoreError
from headgate.clock import SECOND
from headgate.stores.breaker import Breaker
from headgate.stores.redis import Transition
from headgate.stores.redis.connections import TIMELY
from headgate.stores.redis.resolver import MOST_THREADS, Resolver
from headgate.testing import ManualClock
from tests.support.faults import DEADLINE, MANY, SLACK, at_most, limiter_on, open_store
from tests.support.inside import topology_of
from tests.support.servers import Server, wait_until
from tests.support.unreachable import NAME, PATIENTLY, SOON, WAYS, black_hole, opened, silent

pytestmark = pytest.mark.engineless

many_addresses = pytest.mark.skipif(sys.platform != "linux", reason="a host has one address of its own here")


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that is well."""
    with Server(tcp=True) as server:
        yield server.port


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
@pytest.mark.parametrize("nowhere", [silent, black_hole])
@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_cannot_be_reached_costs_a_few_decisions_their_time_and_the_others_nothing(way, nowhere, scheme):
    """The first may take the time to connect, two more that of an answer; then nobody waits for it."""
    seen: list[Transition] = []
    with nowhere() as port, opened(way, f"{scheme}://127.0.0.1:{port}", on_transition=seen.append) as (limiter, _):
        with at_most(SOON + 2 * DEADLINE + SLACK):
            assert all(limiter.hit("k").degraded for _ in range(3))
        assert [each.available for each in seen] == [False]
        with at_most(SLACK):
            assert all(limiter.hit("k").degraded for _ in range(100))


@many_addresses
@pytest.mark.parametrize("way", WAYS)
def test_an_address_that_does_not_answer_leaves_time_for_the_next(way, port, names):
    """The third address of a name is reached within the deadline."""
    names.addresses = ("127.0.0.2", "127.0.0.3", "127.0.0.1")
    with black_hole("127.0.0.2", port), opened(way, f"redis://{NAME}:{port}", **PATIENTLY) as (limiter, _):
        assert not limiter.hit("k").degraded


@many_addresses
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["://{}", "+cluster://{}", "+sentinel://{}/mymaster"])
def test_hundreds_of_silent_servers_get_no_more_time_than_one(way, kind, names):
    """Each is to get a few milliseconds at least, which would make seconds."""
    names.addresses = tuple(f"127.0.{high}.{low}" for high in range(1, 5) for low in range(1, 251))
    with black_hole("0.0.0.0") as port:
        hosts = ",".join(f"{each}:{port}" for each in names.addresses) if kind[0] == "+" else f"{NAME}:{port}"
        with opened(way, f"redis{kind.format(hosts)}") as (limiter, _), at_most(SOON + SLACK):
            assert limiter.hit("k").degraded


@pytest.mark.parametrize("way", WAYS)
def test_nobody_waits_for_a_silent_resolver_and_the_server_is_found_when_it_speaks(way, port, names):
    """Hits are answered within their deadlines, and by the server when its name is known."""
    seen: list[Transition] = []
    names.speaks.clear()
    with opened(way, f"redis://{NAME}:{port}", on_transition=seen.append) as (limiter, _):
        with at_most(SOON + 2 * DEADLINE + SLACK):
            assert all(limiter.hit("k").degraded for _ in range(3))
        names.speaks.set()
        wait_until(lambda: len(seen) > 1, "the server is back", 5)
        assert not limiter.hit("k").degraded


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_was_known_stays_where_it_was_while_the_resolver_is_silent(way, port, names, monkeypatch):
    """A new connection goes to the last address, and the name is asked for once more."""
    monkeypatch.setattr("headgate.stores.redis.resolver.FRESH", 0.0)
    monkeypatch.setattr("headgate.stores.redis.resolver.AGAIN", 60.0)
    with opened(way, f"redis://{NAME}:{port}", **PATIENTLY) as (limiter, hang_up):
        assert not limiter.hit("k").degraded
        names.speaks.clear()
        hang_up()
        assert not limiter.hit("k").degraded
        assert names.lookups == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_name_is_not_looked_up_again_at_once(way, port, names, monkeypatch):
    """Three connections take one lookup."""
    monkeypatch.setattr("headgate.stores.redis.resolver.FRESH", 60.0)
    with opened(way, f"redis://{NAME}:{port}", **PATIENTLY) as (limiter, hang_up):
        for _ in range(3):
            assert not limiter.hit("k").degraded
            hang_up()
    assert names.lookups == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_address_needs_no_resolver(way, port, monkeypatch):
    """A server named by its address is reached without a lookup."""
    monkeypatch.setattr("socket.getaddrinfo", None)
    with opened(way, f"redis://127.0.0.1:{port}", **PATIENTLY) as (limiter, _):
        assert not limiter.hit("k").degraded


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_does_not_exist_is_told_at_once_whatever_it_once_was(way, port, names, monkeypatch):
    """An answer that there is no such name is an error without a wait."""
    monkeypatch.setattr("headgate.stores.redis.resolver.FRESH", 0.0)
    with opened(way, f"redis://{NAME}:{port}", on_error="raise", deadline=60, connect_timeout=60) as (limiter, hang_up):
        assert not limiter.hit("k").degraded
        names.addresses = ()
        hang_up()
        with at_most(30), pytest.raises(StoreError):
            limiter.hit("k")


def test_lookups_of_a_silent_resolver_are_bounded_in_number(names, monkeypatch):
    """However many ask, no more threads than agreed are under way."""
    monkeypatch.setattr("headgate.stores.redis.resolver.AGAIN", 0.0)
    names.speaks.clear()
    resolver = Resolver()
    for port in range(1, MOST_THREADS * 3):
        with pytest.raises(TimeoutError, match=NAME):
            resolver.addresses(NAME, 1 + port % 5, 0.0)
    wait_until(lambda: names.lookups >= MOST_THREADS, "they are on their way")
    names.speaks.set()
    wait_until(lambda: not any(thread.name == "headgate-names" for thread in threading.enumerate()), "all have ended")
    assert names.lookups == MOST_THREADS


def test_threads_that_need_one_name_share_one_lookup(names, monkeypatch):
    """Eight threads get the address from one lookup."""
    monkeypatch.setattr("headgate.stores.redis.resolver.AGAIN", 60.0)
    names.speaks.clear()
    resolver, found, promised = Resolver(), list[Any](), list[Any]()
    ask = resolver._ask

    def counted(name: tuple[str, int]) -> Any:
        promised.append(answer := ask(name))
        return answer

    monkeypatch.setattr(resolver, "_ask", counted)
    asking = [
        threading.Thread(target=lambda: found.append(resolver.addresses(NAME, 1, time.monotonic() + 30)))
        for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    wait_until(lambda: len(promised) == 8, "all of them wait")
    names.speaks.set()
    for thread in asking:
        thread.join()
    assert (len(found), names.lookups) == (8, 1)
    assert all(each == [(2, ("127.0.0.1", 1))] for each in found)


ENDING = f"""
import asyncio, socket, threading
from headgate import AsyncLimiter, Limiter

socket.getaddrinfo = lambda *_, **__: threading.Event().wait()

async def main():
    async with AsyncLimiter("1/s", store="redis://{NAME}") as limiter:
        return await limiter.hit("k")

print(asyncio.run(main()).degraded, Limiter("1/s", store="redis://{NAME}").hit("k").degraded)
"""


def test_a_process_ends_although_a_lookup_does_not():
    """A lookup that hangs does not keep the interpreter from exiting."""
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "True True\n"


def held_up(monkeypatch: pytest.MonkeyPatch, before: float, after: float) -> None:
    """A thread loses the interpreter before it has asked, and again until the reply lies in its socket."""
    kind = TIMELY["unix"]
    send = kind.send_packed_command

    def late(connection: Any, *arguments: Any, **options: Any) -> None:
        time.sleep(before)
        send(connection, *arguments, **options)
        looking = select.poll()
        looking.register(connection._sock.fileno(), select.POLLIN)
        assert looking.poll(5000)
        time.sleep(after)

    monkeypatch.setattr(kind, "send_packed_command", late)


@pytest.mark.parametrize(("before", "after"), [(0, 0.03), (0.03, 0), (0.03, 0.03)])
def test_a_reply_that_lies_in_the_socket_is_read_however_late_its_thread_comes(server, monkeypatch, before, after):
    """Other threads had the interpreter: the server was in time."""
    held_up(monkeypatch, before, after)
    with open_store(server.url, deadline=0.01, connect_timeout=0.01) as store:
        limiter = Limiter(MANY, store=store)
        assert [limiter.hit("k").remaining for _ in range(5)] == [9_999, 9_998, 9_997, 9_996, 9_995]
        assert not topology_of(store).origin.breaker.troubled


def test_a_reply_that_is_not_there_is_not_waited_for_by_a_thread_that_comes_late(proxy, monkeypatch):
    """A thread that comes back after its deadline does not wait for the reply."""
    with limiter_on(proxy.url, deadline=0.05) as limiter:
        limiter.hit("k")
        proxy.hold()
        kind = TIMELY["tcp"]
        send = kind.send_packed_command

        def late(*arguments: Any, **options: Any) -> None:
            send(*arguments, **options)
            time.sleep(0.06)

        monkeypatch.setattr(kind, "send_packed_command", late)
        with at_most(0.06 + SLACK):
            assert limiter.hit("k").degraded


def test_failures_open_the_breaker_however_long_each_takes():
    """Three failures of 21 s each, one after the other, are an outage."""
    breaker, clock = Breaker(), ManualClock(1e9)
    breaker._clock = clock  # type: ignore[assignment]
    opened = []
    for _ in range(3):
        clock.us += 21 * SECOND
        opened.append(breaker.failed(spent=21.0))
    assert opened == [False, False, True]


def test_failures_with_much_time_between_them_have_nothing_to_do_with_each_other():
    """Five failures 12 s apart are none."""
    breaker, clock = Breaker(), ManualClock(1e9)
    breaker._clock = clock  # type: ignore[assignment]
    for _ in range(5):
        clock.us += 12 * SECOND
        assert not breaker.failed(spent=1.0)
    assert breaker.troubled and not breaker.open
