"""How a server is found, reached and understood.

redis-py's own defaults wait five seconds and retry ten times, timeouts included, so that a script that was applied may
be applied again. Of a URL or a ready client only who and where is taken; timeouts, retries and decoding are ours. So is
the way to a primary: redis-py's clients for sentinels and clusters have timeouts and retries of their own at each step.
"""

from __future__ import annotations

import asyncio
import binascii
import time
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from headgate.stores.redis.connections import AWAITED, TIMELY, UNANNOUNCED, hang_up, shared
from headgate.stores.redis.deadline import MANY_TURNS, Deadline
from headgate.stores.redis.discovery import SLOTS, Address, NoTimeLeft, Question, Sentinels, Slots, Steps
from headgate.stores.redis.library import FAILURES, AskError, MovedError, NoBackoff, ResponseError, Retry, redis
from headgate.stores.redis.resolver import Resolver
from headgate.stores.redis.url import RedisUrl
from headgate.wording import log_of

__all__ = ["FAILURES", "Connector", "Timeouts", "slot_of", "told"]

T = TypeVar("T")
LOOK: Final = ("INFO", "memory")


class Timeouts(NamedTuple):
    """Seconds."""

    answer: float
    connect: float


def slot_of(subject: bytes) -> int:
    """The cluster slot of `hg1:{...}`."""
    return binascii.crc_hqx(subject[subject.index(b"{") + 1 : -1], 0) % SLOTS


class Connector:
    """Makes connections to the servers of one URL. Whatever that takes, it ends at the time `due`."""

    def __init__(self, url: RedisUrl, timeouts: Timeouts) -> None:
        self.url = url
        self.timeouts = timeouts
        self._looked = False
        self.forget()

    def forget(self) -> None:
        """After a fork: everything is found anew, with no lock or thread of the parent."""
        self.slots = Slots(self.url.hosts)
        self._sentinels = Sentinels(self.url.hosts, self.url.service)
        self._resolver = Resolver()

    def patience(self, hurried: bool) -> float:
        """Seconds to connect. After a failure nobody is made to wait longer than for an answer."""
        return min(self.timeouts) if hurried else self.timeouts.connect

    def connect(self, address: Address | None, due: float) -> Any:  # noqa: ANN401
        """A connection to an address of the cluster, or to the one server that is meant; connected."""
        if self.url.kind == "sentinel":
            address = self._follow(self._sentinels.find(), due)
        made = self._made(TIMELY, address, due)
        try:
            made.connect()
            if self._looks():
                made.send_command(*LOOK)
                with suppress(ResponseError):  # not everybody may ask
                    _warn_of_eviction(made.read_response(disable_decoding=True))
        except BaseException:
            made.disconnect()
            raise
        return made

    async def connect_async(self, address: Address | None, due: float) -> Any:  # noqa: ANN401
        """As `connect`; it then waits for answers for ever, since whoever asks has a deadline."""
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
        """A connection, not connected yet."""
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
        """Whether somebody still has to look at the server's settings; whoever is told so does it."""
        looked, self._looked = self._looked, True
        return not looked

    def find_nodes(self, due: float) -> None:
        """Ask the cluster who serves which slot."""
        self._follow(self.slots.find(), due)

    async def find_nodes_async(self, due: float) -> None:
        """As `find_nodes`."""
        await self._follow_async(self.slots.find(), due)

    def _follow(self, steps: Steps[T], due: float) -> T:
        try:
            question = next(steps)
            while True:
                try:
                    reply = self._ask(question, shared(due, question.shares, time.monotonic()))
                except (*FAILURES, ValueError) as error:
                    question = _next_after(steps, error, time.monotonic() >= due)
                else:
                    question = steps.send(reply)
        except StopIteration as done:
            value: T = done.value
            return value

    async def _follow_async(self, steps: Steps[T], due: float) -> T:
        loop = asyncio.get_running_loop()
        try:
            question = next(steps)
            while True:
                try:
                    reply = await self._ask_async(question, shared(due, question.shares, loop.time()))
                except (*FAILURES, ValueError) as error:
                    question = _next_after(steps, error, loop.time() >= due)
                else:
                    question = steps.send(reply)
        except StopIteration as done:
            value: T = done.value
            return value

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


def _next_after(steps: Steps[T], error: Exception, late: bool) -> Question:
    """Whom to ask after a failure, if there is time for anybody."""
    if isinstance(error, ValueError):
        error = ConnectionError(f"what answers is no such server: {error}")
    question = steps.throw(error)
    return steps.throw(NoTimeLeft("no time to ask anybody else")) if late else question


def told(error: MovedError | AskError, asked: Address | None) -> Address:
    """Where a server sends us; one that tells only a port means its own host."""
    return error.host or (asked[0] if asked else ""), int(error.port)


def _warn_of_eviction(info: object) -> None:
    """A server that evicts any key forgets limits when memory is short: abusers first, since they fill it."""
    policy = info.partition(b"maxmemory_policy:")[2].split(b"\r")[0] if isinstance(info, bytes) else b""
    if policy.startswith(b"allkeys"):
        log_of("headgate").warning(
            "the server evicts by %s: when its memory is full it forgets limits before their time; "
            "set maxmemory-policy to noeviction or volatile-ttl",
            policy.decode("ascii", "replace"),
        )
