"""Connections to a server: how it is found, and how it is called.

redis-py's defaults wait five seconds and retry ten times, also after a timeout, so a script that was applied may be
applied again. Only the address and the login are taken from a URL or a ready client; timeouts, retries and decoding are
set here. So is the search for a primary: redis-py's sentinel and cluster clients time out and retry at each step.
"""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from headgate.steps import Steps, run, run_awaiting
from headgate.stores.deadline import MANY_TURNS, Deadline
from headgate.stores.redis.connections import AWAITED, TIMELY, UNANNOUNCED, Timeouts, hang_up, shared
from headgate.stores.redis.discovery import SLOTS, Address, NoTimeLeft, Question, Sentinels, Slots
from headgate.stores.redis.discovery import Steps as Discovery
from headgate.stores.redis.library import (
    FAILURES,
    NONSENSE,
    AskError,
    MovedError,
    NoBackoff,
    ResponseError,
    Retry,
    redis,
)
from headgate.stores.redis.resolver import Resolver
from headgate.stores.redis.url import RedisUrl
from headgate.wording import log_of

__all__ = ["FAILURES", "Connector", "Timeouts", "redirected_to", "slot_of"]

T = TypeVar("T")
LOOK: Final = ("INFO", "memory")


def slot_of(subject: bytes) -> int:
    """Return the cluster slot of `hg1:{...}`."""
    return binascii.crc_hqx(subject[subject.index(b"{") + 1 : -1], 0) % SLOTS


class Connector:
    """Makes connections to the servers of one URL. All steps of a connection together end at the time `due`."""

    def __init__(self, url: RedisUrl, timeouts: Timeouts) -> None:
        self.url = url
        self.timeouts = timeouts
        self._looked = False
        self.forget()

    def forget(self) -> None:
        """Start again after a fork, without locks and threads of the parent."""
        self.slots = Slots(self.url.hosts)
        self._sentinels = Sentinels(self.url.hosts, self.url.service)
        self._resolver = Resolver()

    def patience(self, hurried: bool) -> float:
        """Return the seconds to connect. After a failure, no caller waits longer than for an answer."""
        return min(self.timeouts) if hurried else self.timeouts.connect

    def connect(self, address: Address | None, due: float) -> Any:  # noqa: ANN401
        """Return an open connection to an address of the cluster, or to the one server of the URL."""
        if self.url.kind == "sentinel":
            address = self._follow(self._sentinels.find(), due)
        made = self._made(TIMELY, address, due)
        try:
            made.connect()
            if self._looks():
                made.send_command(*LOOK)
                with suppress(ResponseError):  # an ACL may forbid the command
                    _warn_of_eviction(made.read_response(disable_decoding=True))
        except BaseException:
            made.disconnect()
            raise
        return made

    async def connect_async(self, address: Address | None, due: float) -> Any:  # noqa: ANN401
        """Like `connect`; the connection itself has no timeout for answers, since each command has a deadline."""
        if self.url.kind == "sentinel":
            address = await self._follow_async(self._sentinels.find(), due)
        made = self._made(AWAITED, address, due)
        try:
            async with Deadline(due, MANY_TURNS):
                await made.connect()
                if self._looks():
                    await made.send_command(*LOOK)
                    with suppress(ResponseError):
                        _warn_of_eviction(await made.read_response(disable_decoding=True))
        except BaseException:
            await hang_up(made)
            raise
        return made

    def _made(self, kinds: dict[str, Any], address: Address | None, due: float, sentinel: bool = False) -> Any:  # noqa: ANN401
        """Return a connection that is not open yet."""
        options, transport = self.url.options, self.url.transport
        if sentinel:
            options = self.url.sentinel_options
            transport = "tls" if any(name.startswith("ssl_") for name in options) else "tcp"
        where = {"host": address[0], "port": address[1]} if address else {}
        retry = Retry(NoBackoff(), 0) if kinds is TIMELY else redis.asyncio.retry.Retry(NoBackoff(), 0)
        ours = {"protocol": 2, "socket_timeout": None, "socket_connect_timeout": None, "retry": retry}
        made = kinds[transport](**{**options, **where, **ours, **UNANNOUNCED})
        made.due, made.resolver = due, self._resolver
        return made

    def _looks(self) -> bool:
        """Whether the caller must check the server's settings. True for the first caller only."""
        looked, self._looked = self._looked, True
        return not looked

    def find_nodes(self, due: float) -> None:
        """Ask the cluster which node serves which slot."""
        self._follow(self.slots.find(), due)

    async def find_nodes_async(self, due: float) -> None:
        """Like `find_nodes`."""
        await self._follow_async(self.slots.find(), due)

    def _follow(self, steps: Discovery[T], due: float) -> T:
        return run(_asked(steps, due, self._ask, time.monotonic))

    async def _follow_async(self, steps: Discovery[T], due: float) -> T:
        return await run_awaiting(_asked(steps, due, self._ask_async, asyncio.get_running_loop().time))

    def _ask(self, question: Question, due: float) -> Any:  # noqa: ANN401
        made = self._made(TIMELY, question.address, due, sentinel=self.url.kind == "sentinel")
        try:
            made.connect()
            made.send_command(*question.words)
            return made.read_response(disable_decoding=True)
        finally:
            made.disconnect()

    async def _ask_async(self, question: Question, due: float) -> Any:  # noqa: ANN401
        made = self._made(AWAITED, question.address, due, sentinel=self.url.kind == "sentinel")
        try:
            async with Deadline(due, MANY_TURNS):
                await made.connect()
                await made.send_command(*question.words)
                return await made.read_response(disable_decoding=True)
        finally:
            await hang_up(made)


def _asked(
    steps: Discovery[T], due: float, ask: Callable[[Question, float], Any], now: Callable[[], float]
) -> Steps[T]:
    """Ask each question for its share of the time; end the steps if no time is left after a failure."""
    try:
        question = next(steps)
        while True:
            try:
                reply = yield ask(question, shared(due, question.shares, now()))
            except FAILURES as error:
                question = steps.throw(error)
            except NONSENSE as error:
                wrong = f"the reply does not come from a Redis or Valkey server: {error}"
                question = steps.throw(ConnectionError(wrong))
            else:
                question = steps.send(reply)
                continue
            if now() >= due:
                question = steps.throw(NoTimeLeft("no time left to ask another server"))
    except StopIteration as done:
        value: T = done.value
        return value


def redirected_to(error: MovedError | AskError, asked: Address | None) -> Address:
    """Return the address in a redirection; one without a host means the host of the server that was asked."""
    return error.host or (asked[0] if asked else ""), int(error.port)


def _warn_of_eviction(info: object) -> None:
    """Warn of a server that evicts any key: when its memory is full, it drops states, which frees abusers."""
    policy = info.partition(b"maxmemory_policy:")[2].split(b"\r")[0] if isinstance(info, bytes) else b""
    if policy.startswith(b"allkeys"):
        log_of("headgate").warning(
            "the server evicts keys by %s: when its memory is full, it drops the counts of limits too early; "
            "set maxmemory-policy to noeviction or volatile-ttl",
            policy.decode("ascii", "replace"),
        )
