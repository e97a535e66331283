"""Pipelines: in asyncio, questions asked at one time travel together.

A question joins those that wait; whoever waits when the pipeline leaves goes along, in order, so the first of a burst
takes the whole burst with it and a lone one goes at once. While one batch is on its way the next one gathers. There is
one pipeline for each event loop and server. A caller that gives up abandons its own future; the pipeline reads on, so
no answer reaches the wrong caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connections import FAIR, hang_up
from headgate.stores.redis.deadline import Deadline
from headgate.stores.redis.library import FAILURES, ResponseError
from headgate.stores.redis.topology import LONG_IDLE, MOST_HOPS, Away, Node, Topology

MOST_GROUPS: Final = 128
"""Decisions in one command."""
MOST_FLYING: Final = 2 * MOST_GROUPS
"""Decisions on their way: while the server works on one half, the answers of the other are handed out."""


class Batch:
    """A command, and who waits for each of its groups."""

    __slots__ = ("command", "due", "futures", "hops", "since")

    def __init__(self, command: Command, future: asyncio.Future[Any], since: float) -> None:
        self.command = command
        self.futures = [future]
        self.since = self.due = since
        self.hops = 0

    def join(self, other: Batch) -> bool:
        """Take another question along, if it is for the same script; whether there was room."""
        mine, its = self.command, other.command
        if mine.script is not its.script or mine.groups >= MOST_GROUPS or mine.now != its.now:
            return False
        mine.groups += its.groups
        mine.whole = mine.whole or its.whole
        mine.keys += its.keys
        mine.arguments += its.arguments
        self.futures += other.futures
        return True

    @property
    def wanted(self) -> bool:
        """Somebody still waits."""
        return not all(future.done() for future in self.futures)

    def answer(self, reply: object) -> None:
        """Hand the reply to everybody; each finds its own group by its index."""
        for index, future in enumerate(self.futures):
            if not future.done():
                future.set_result((reply, index))

    def fail(self, error: BaseException) -> None:
        """Nobody gets an answer."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class Pipeline:
    """Carries questions to one server and answers back."""

    def __init__(self, pipelines: Pipelines, node: Node) -> None:
        self._pipelines = pipelines
        self._node = node
        self._loop = pipelines.loop
        self._waiting: deque[Batch] = deque()
        self._again: deque[Batch] = deque()
        self._flying: deque[Batch] = deque()
        self._flying_groups = 0
        self._connection: Any = None
        self._answers_from = self._used_at = 0.0
        self._round: asyncio.Task[None] | None = None
        self.leaves = False
        """Nobody new is sent along: hang up after this round."""

    def take(self, batch: Batch) -> None:
        """Carry this too."""
        self._waiting.append(batch)
        if self._round is None:
            self._round = self._loop.create_task(self._go())

    async def _go(self) -> None:
        topology = self._pipelines.topology
        began = self._waiting[0].since if self._waiting else self._loop.time()
        try:
            if self._connection is not None and self._loop.time() - self._used_at > LONG_IDLE:
                await self._look_at_connection()
            if self._connection is None:
                await self._connect(began)
            while self._again or self._waiting or self._flying:
                await self._send()
                if self._flying:
                    await self._receive()
        except Exception as error:  # whatever it is, nobody is left waiting for ever
            topology.failed(self._node, error, began)
            await self._give_up(error)
        except asyncio.CancelledError as error:
            await self._give_up(error)
            raise
        finally:
            self._round = None
            self._used_at = self._loop.time()
        if self.leaves:
            await self.close()

    async def _connect(self, began: float) -> None:
        """The time runs from when the first of those who wait began; after a failure, connecting is part of it."""
        connector, hurried = self._pipelines.topology.connector, self._node.breaker.troubled
        self._connection = await connector.connect_async(self._node.address, began + connector.patience(hurried))
        self._answers_from = began if hurried else self._loop.time()

    async def _look_at_connection(self) -> None:
        """A connection that was idle for a while may have been closed by the other side."""
        connection = self._connection
        # redis-py 8 renamed the question and warns of the old name; redis-py 5 knows only that one.
        can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
        try:
            dead = await can_read()
        except FAILURES:
            dead = True
        if dead:
            self._connection = None
            await hang_up(connection)

    async def _send(self) -> None:
        """Put what waits into as few commands as may be, in order, and send them in one write."""
        data = []
        answer, fair = self._pipelines.topology.connector.timeouts.answer, self._loop.time() + FAIR
        # What has to be sent again goes first, and alone, or it would be overtaken.
        queue = self._again or self._waiting
        while queue and self._flying_groups < MOST_FLYING:
            batch = queue.popleft()
            if not batch.wanted:
                continue
            if not self._pipelines.topology.clustered:  # in a cluster each group has a slot of its own
                while queue and batch.join(queue[0]):
                    queue.popleft()
            batch.due = max(batch.since + answer, self._answers_from + answer, fair)
            self._flying.append(batch)
            self._flying_groups += batch.command.groups
            data.append(batch.command.encode())
        if data:
            if self._connection_is_lost():
                raise ConnectionResetError("the server has hung up")
            async with Deadline(self._flying[0].due):
                await self._connection.send_packed_command(data, check_health=False)

    def _connection_is_lost(self) -> bool:
        """Whether the event loop knows that nobody is there any more.

        Not to be written to: `writelines` of a lost transport (CPython 3.12, 3.13) leaves a writer behind for a socket
        that is being closed, and the next connection, which gets its number, is then never told that it is connected.
        """
        writer = getattr(self._connection, "_writer", None)
        return writer is not None and writer.transport.is_closing()

    async def _receive(self) -> None:
        """Replies, for the batches that left first, until there is room for more."""
        async with Deadline(self._flying[0].due) as deadline:
            while True:
                batch = self._flying[0]
                deadline.move(batch.due)
                reply: Any = None
                for _ in range(1 + batch.command.asking):
                    try:
                        reply = await self._connection.read_response(disable_decoding=True)
                    except ResponseError as error:
                        reply = error
                self._flying.popleft()
                self._flying_groups -= batch.command.groups
                if batch.command.understands(reply):
                    self._pipelines.topology.succeeded(self._node)
                    batch.answer(reply)
                elif isinstance(reply, Exception):
                    self._turn(batch, reply)
                else:
                    nonsense = Away(f"{self._node.name} answers what no such server does")
                    batch.fail(nonsense)
                    raise nonsense
                if not self._flying or (not self._again and self._waiting and self._flying_groups <= MOST_GROUPS):
                    return

    def _turn(self, batch: Batch, error: Exception) -> None:
        """Send a batch that was not run where it belongs, or fail it."""
        batch.hops += 1
        try:
            if batch.hops >= MOST_HOPS:
                raise error
            hung_up = batch.command.turned
            node = self._pipelines.topology.redirect(self._node, batch.command, error)
        except FAILURES as final:
            batch.fail(final)
            return
        if node is not self._node:
            self._pipelines.at(node).take(batch)
        elif batch.command.turned and not hung_up:
            self._pipelines.drop(self._node)
            self._pipelines.at(node).take(batch)
        else:
            # One that brings the script is enough for all that need it.
            batch.command.whole = not any(each.command.script is batch.command.script for each in self._again)
            self._again.append(batch)

    async def _give_up(self, error: BaseException) -> None:
        """Drop the connection: whatever it would still bring belongs to nobody."""
        connection, self._connection = self._connection, None
        reason = Away(f"{self._node.name}: {type(error).__name__} {error}")
        for batch in (*self._flying, *self._again, *self._waiting):
            batch.fail(reason)
        self._flying.clear()
        self._again.clear()
        self._flying_groups = 0
        self._waiting.clear()
        if connection is not None:
            await hang_up(connection)

    async def close(self) -> None:
        """Hang up; who waits gets an error."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])
        await self._give_up(Away("the store was closed"))


class Pipelines:
    """The pipelines of one event loop."""

    def __init__(self, topology: Topology, loop: asyncio.AbstractEventLoop) -> None:
        self.topology = topology
        self.loop = loop
        self._pipelines: dict[Node, Pipeline] = {}
        self._finding: asyncio.Task[None] | None = None

    def at(self, node: Node) -> Pipeline:
        """The pipeline to a server."""
        pipeline = self._pipelines.get(node)
        if pipeline is None:
            pipeline = self._pipelines[node] = Pipeline(self, node)
        return pipeline

    def drop(self, node: Node) -> None:
        """The next question to this server goes by a new connection."""
        pipeline = self._pipelines.pop(node, None)
        if pipeline is not None:
            pipeline.leaves = True

    def exchange(self, command: Command) -> Awaitable[tuple[Any, int]]:
        """To be awaited: the reply to a command, and the index of its group in it."""
        node = self.topology.node_for(command.subject)
        if node.breaker.open:
            raise Away(f"{node.name} is away")
        if self.topology.clustered and node.address is None:
            return self._find_and_exchange(command)
        return self._carry(command, node, self.loop.time())

    def _carry(self, command: Command, node: Node, since: float) -> asyncio.Future[tuple[Any, int]]:
        future: asyncio.Future[tuple[Any, int]] = self.loop.create_future()
        self.at(node).take(Batch(command, future, since))
        return future

    async def _find_and_exchange(self, command: Command) -> tuple[Any, int]:
        """The nodes of a cluster are found once, for everybody who waits for it."""
        since = self.loop.time()
        if self._finding is None or self._finding.done():
            self._finding = self.loop.create_task(self._find(since))
        await asyncio.shield(self._finding)
        return await self._carry(command, self.topology.known_for(command.subject), since)

    async def _find(self, began: float) -> None:
        origin = self.topology.origin
        try:
            await self.topology.connector.find_nodes_async(
                began + self.topology.connector.patience(origin.breaker.troubled)
            )
        except FAILURES as error:
            self.topology.failed(origin, error, began)
            raise

    async def close(self) -> None:
        """Close every connection of this loop."""
        if self._finding is not None:
            self._finding.cancel()
        for pipeline in list(self._pipelines.values()):
            await pipeline.close()
        self._pipelines.clear()
