"""Threads that ask one server together: one sends for those that wait, and each gets its own answer."""

from __future__ import annotations

import asyncio
import socketserver
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from headgate import Limiter
from headgate.stores.redis import senders
from headgate.stores.redis.names import Names
from headgate.stores.redis.outgoing import Outgoing, split
from tests.support.crowds import LEFT, OTHERS, answers, crowd
from tests.support.faults import MANY, SLACK, at_most, open_store
from tests.support.inside import names_in, senders_of, topology_of
from tests.support.proxy import Proxy
from tests.support.servers import wait_until

pytestmark = pytest.mark.engineless


def test_one_thread_sends_for_all_that_wait(proxy, one_sends):
    """Sixteen decisions take two writes: the first, and one for the fifteen that waited. Each gets its own answer."""
    with crowd(proxy) as threads:
        others = threads.gather()
        assert proxy.requests - threads.asked == 1
        proxy.release()
        assert answers([threads.first, *others]) == LEFT
        assert proxy.requests - threads.asked == 2
        assert not senders_of(threads.limiter.store).sending


def test_one_write_has_a_bounded_number_of_commands(proxy, one_sends, monkeypatch):
    """Fifteen commands that wait take four writes if each may have four of them."""
    monkeypatch.setattr(senders, "MOST", 4)
    with crowd(proxy) as threads:
        others = threads.gather()
        proxy.release()
        assert answers([threads.first, *others]) == LEFT
        assert proxy.requests - threads.asked == 5


def test_many_that_wait_make_one_thread_send_at_a_time_until_few_wait(server):
    """After a write for more than four threads one thread sends at a time; after eight small ones, four do."""
    with open_store(server.url) as store:
        limiter, sending = Limiter(MANY, store=store), senders_of(store)
        assert sending.most == 4
        sending.count(5)
        assert sending.most == 1
        for _ in range(7):
            limiter.hit("k")
        assert sending.most == 1
        limiter.hit("k")
        assert sending.most == 4


class Pieces(Proxy):
    """Delivers replies in pieces of eleven bytes."""

    async def _carry_replies(self, replies, client, asked) -> None:
        while piece := await replies.read(11):
            await self._replies_flow.wait()
            client.write(piece)
            await client.drain()
            await asyncio.sleep(0)


def test_replies_that_arrive_in_pieces_reach_their_own_threads(server, one_sends):
    """Replies to sixteen commands that arrive eleven bytes at a time are told apart."""
    with Pieces(server) as proxy, crowd(proxy) as threads:
        others = threads.gather()
        proxy.release()
        assert answers([threads.first, *others]) == LEFT


def test_a_script_that_the_server_forgot_is_sent_by_each_thread_that_needs_it(server, proxy, one_sends):
    """All fifteen commands of one write are refused for the same reason, and all are answered."""
    with crowd(proxy) as threads:
        others = threads.gather()
        server.client().script_flush()
        proxy.release()
        assert answers([threads.first, *others]) == LEFT


def test_an_error_of_one_command_is_the_answer_of_its_thread_only(server, proxy, one_sends):
    """A key that the server keeps as another type fails its own thread."""
    with crowd(proxy) as threads:
        names = names_in(threads.limiter.store, "default")
        (limit,) = threads.limiter.limits
        server.client().lpush(names.subject("key 1") + names.suffix(limit), "a list")
        others = threads.gather()
        proxy.release()
        assert answers([threads.first, *others]) == [LEFT[0], -1, *LEFT[2:]]


def test_a_reply_of_the_wrong_length_is_the_answer_of_its_thread_only():
    """Only data that is exactly the expected replies is split; otherwise redis-py reads reply by reply."""
    fits = b"$2\r\nab\r\n$3\r\ncde\r\n"
    for data, splits in (
        (fits, True),
        (fits[:-1], False),
        (fits + b"$0\r\n", False),
        (b"$2\r\nab\r\n$2\r\ncd\r\n", False),
        (b"$2\r\nab\r\n-ERR\r\n", False),
        (b"", False),
    ):
        batch = [Outgoing(b"", 0.0, 1, 2), Outgoing(b"", 0.0, 1, 3)]
        assert split(data, batch) is splits
        assert [each.reply for each in batch] == ([b"ab", b"cde"] if splits else [None, None])


class Odd(socketserver.StreamRequestHandler):
    """Answers each decision with all of the limit, and the one over `key 1` with a string of the wrong length."""

    wrong = Names("default", b"").subject("key 1")
    right = b"$56\r\n" + struct.pack("<7q", 1, 1, 10_000, 0, 0, 1, 0) + b"\r\n"

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(1 << 16):
                self.server.may_answer.wait(30)
                commands = data.split(b"EVALSHA")[1:]
                self.request.sendall(
                    b"".join(b"$2\r\nno\r\n" if self.wrong in each else self.right for each in commands)
                )


def test_a_reply_of_the_wrong_length_does_not_spoil_the_others(one_sends):
    """One of sixteen replies has the wrong length: fifteen decisions are answered by the server."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Odd) as odd, ThreadPoolExecutor(OTHERS + 2) as pool:
        odd.daemon_threads, odd.may_answer = True, threading.Event()
        pool.submit(odd.serve_forever, 0.01)
        try:
            with open_store(f"redis://127.0.0.1:{odd.server_address[1]}", deadline=60, connect_timeout=60) as store:
                topology_of(store).connector._looked = True  # this server has no settings
                limiter = Limiter(MANY, store=store)
                odd.may_answer.set()
                limiter.hit("warm")
                odd.may_answer.clear()
                first = pool.submit(limiter.hit, "key 0")
                wait_until(lambda: senders_of(store).sending, "the first sends")
                others = [pool.submit(limiter.hit, f"key {number}") for number in range(1, OTHERS + 1)]
                wait_until(lambda: len(senders_of(store).waiting) == OTHERS, "the others wait")
                odd.may_answer.set()
                assert answers([first, *others]) == [10_000, -1, *[10_000] * (OTHERS - 1)]
        finally:
            odd.may_answer.set()
            odd.shutdown()


def test_no_thread_waits_for_others_while_the_server_is_far(proxy):
    """Replies that take a twentieth of a second leave the interpreter free: sixteen threads send at once."""
    with open_store(proxy.url, deadline=60, connect_timeout=60) as store, ThreadPoolExecutor(16) as pool:
        limiter = Limiter(MANY, store=store)
        proxy.delay(0.05)
        limiter.hit("warm")
        proxy.hold()
        asked = proxy.requests
        decisions = [pool.submit(limiter.hit, f"key {number}", number + 1) for number in range(16)]
        wait_until(lambda: len(senders_of(store).sending) == 16, "all threads send")
        wait_until(lambda: proxy.requests - asked >= 16, "all commands are on their way")
        proxy.release()
        assert answers(decisions) == LEFT


def test_a_thread_that_waited_long_enough_sends_by_itself(proxy, monkeypatch):
    """A command that never ends keeps the others waiting for a hundredth of a second only."""
    monkeypatch.setattr(senders, "FEW", 1)
    monkeypatch.setattr(senders, "WORK", 1_000.0)
    with crowd(proxy) as threads:
        with at_most(SLACK):
            other = threads.ask(1)
            wait_until(lambda: proxy.requests - threads.asked == 2, "the other thread has sent")
        proxy.release()
        assert answers([threads.first, other]) == LEFT[:2]
