"""Pipelines: in asyncio, commands of the same moment are sent together.

A command joins those that wait; all that wait when the pipeline sends are sent, in order, so a whole burst is sent
together and a single command is sent at once. While one batch is at the server, the next one is collected. There is one
pipeline for each event loop and server. A caller that gives up abandons its own future; the pipeline still reads the
reply, so no answer reaches the wrong caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

from headgate.stores.deadline import Deadline
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connections import FAIR, hang_up
from headgate.stores.redis.library import FAILURES, ResponseError
from headgate.stores.redis.node import LONG_IDLE, MOST_HOPS, Away, Node
from headgate.stores.redis.topology import Topology

MOST_GROUPS: Final = 128
"""The most decisions in one command."""
MOST_FLYING: Final = 2 * MOST_GROUPS
"""The most decisions at the server: while it works on one half, the answers of the other half are delivered."""


class Batch:
    """A command, and a future for each of its groups."""

    __slots__ = ("command", "due", "futures", "hops", "since")

    def __init__(self, command: Command, future: asyncio.Future[Any], since: float) -> None:
        self.command = command
        self.futures = [future]
        self.since = self.due = since
        self.hops = 0

    def join(self, other: Batch) -> bool:
        """Add another batch of the same script to this one; whether it fitted."""
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
        """Whether a caller still waits."""
        return not all(future.done() for future in self.futures)

    def answer(self, reply: object) -> None:
        """Give the reply to every caller; each reads its own group by its index."""
        for index, future in enumerate(self.futures):
            if not future.done():
                future.set_result((reply, index))

    def fail(self, error: BaseException) -> None:
        """Give the error to every caller."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class Pipeline:
    """Sends commands to one server and reads the replies."""

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
        """Whether to close after this round; no new command joins."""

    def take(self, batch: Batch) -> None:
        """Send this batch too."""
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
        except Exception as error:  # for any error: no caller may wait for ever
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
        """Connect. The time starts with the first waiting caller; after a failure, it includes connecting."""
        connector, hurried = self._pipelines.topology.connector, self._node.breaker.troubled
        self._connection = await connector.connect_async(self._node.address, began + connector.patience(hurried))
        self._answers_from = began if hurried else self._loop.time()

    async def _look_at_connection(self) -> None:
        """Drop a connection that the server has closed while it was idle."""
        connection = self._connection
        # redis-py 8 renamed the method and warns of the old name; redis-py 5 has only the old name.
        can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
        try:
            dead = await can_read()
        except FAILURES:
            dead = True
        if dead:
            self._connection = None
            await hang_up(connection)

    async def _send(self) -> None:
        """Join the waiting batches into as few commands as possible, in order, and send them in one write."""
        data = []
        answer, fair = self._pipelines.topology.connector.timeouts.answer, self._loop.time() + FAIR
        # A batch that must be sent again goes first and alone; otherwise later ones would overtake it.
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
                raise ConnectionResetError("the server closed the connection")
            async with Deadline(self._flying[0].due):
                await self._connection.send_packed_command(data, check_health=False)

    def _connection_is_lost(self) -> bool:
        """Whether the event loop knows that the connection is lost.

        Such a connection must not be written to: `writelines` of a lost transport (CPython 3.12, 3.13) leaves a writer
        for a closing socket, and the next connection, which gets the same number, then never finishes connecting.
        """
        writer = getattr(self._connection, "_writer", None)
        return writer is not None and writer.transport.is_closing()

    async def _receive(self) -> None:
        """Read replies, in the order of the batches, until there is room for more commands."""
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
                    nonsense = Away(f"{self._node.name} does not answer like a Redis or Valkey server")
                    batch.fail(nonsense)
                    raise nonsense
                if not self._flying or (not self._again and self._waiting and self._flying_groups <= MOST_GROUPS):
                    return

    def _turn(self, batch: Batch, error: Exception) -> None:
        """Send a batch that was not run to the right server, or fail it."""
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
            # One command with the source of the script is enough for all that need it.
            batch.command.whole = not any(each.command.script is batch.command.script for each in self._again)
            self._again.append(batch)

    async def _give_up(self, error: BaseException) -> None:
        """Drop the connection and fail all batches: no caller waits for its replies any more."""
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
        """Close the connection; waiting callers get an error."""
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
        """Return the pipeline to a server."""
        pipeline = self._pipelines.get(node)
        if pipeline is None:
            pipeline = self._pipelines[node] = Pipeline(self, node)
        return pipeline

    def drop(self, node: Node) -> None:
        """Send the next command to this server over a new connection."""
        pipeline = self._pipelines.pop(node, None)
        if pipeline is not None:
            pipeline.leaves = True

    def exchange(self, command: Command) -> Awaitable[tuple[Any, int]]:
        """Return an awaitable of the reply to a command, and of the index of its group in the reply."""
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
        """Find the nodes of the cluster, once for all callers that wait, then send the command."""
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
