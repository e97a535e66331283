"""A world of nodes that lease: virtual time, one server, wires that fail. Everything follows from a seed.

The gates are the real ones. Their steps, which know no I/O, are carried over wires that delay and lose, to a server
that runs the reference steps by a clock of its own. What was charged, spent and given back is written down, and
`lease_laws.py` says what must be true of it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from headgate.clock import SECOND
from headgate.engine.modes import TAKE
from headgate.limit import as_limits
from headgate.stores import MemoryStore
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.redis.compiled import AHEAD, GIVE, HEARTBEAT, Command
from tests.support.lease_node import NAMES, Node
from tests.support.lease_server import Server
from tests.support.lease_setup import Ledger, Setup, Spent
from tests.support.virtual import SkewedClock, VirtualLoop


class Trip:
    """There and back, or a failure at the deadline: one of the two is told, once, if the node lives to hear it."""

    __slots__ = ("command", "decided", "done", "fail", "life", "node", "reply", "units", "world")

    def __init__(
        self, node: Node, command: Command, reply: Callable[[Any], None], fail: Callable[[BaseException], None]
    ) -> None:
        self.world, self.node, self.command, self.reply, self.fail = node.world, node, command, reply, fail
        self.life, self.done = node.life, False
        self.units = self.decided = 0

    def there(self) -> None:
        """At the server, by its own time."""
        world, mode = self.world, self.command.mode
        if world.loses(self.node):
            return
        answer: Any = world.count(self.node) if mode == HEARTBEAT else None
        if mode != HEARTBEAT:
            answer, self.units = world.server.answer(self.command)
            self.decided = world.loop.now
        if mode == GIVE:
            world.ledger.given_back += self.units
        else:
            world.ledger.charged += self.units
        world.loop.at(world.loop.now + world.delay(), self.back, answer)

    def back(self, answer: Any) -> None:
        """At the node again."""
        mode, ledger = self.command.mode, self.world.ledger
        if self.done or self.node.life != self.life or self.world.loses(self.node):
            ledger.lost += self.units * (mode in (TAKE, AHEAD))
            return
        self.done = True
        alone = mode == AHEAD and self.units == self.world.server.asked_alone(self.command)
        if self.units and (mode == TAKE or alone):
            self.node.spent(self.world.key_of(self.command), self.units, leased=False, at=self.decided)
        ledger.received += self.units * (mode == AHEAD and not alone)
        if mode in (TAKE, AHEAD):
            self.node.heard[self.world.key_of(self.command)] = self.node.clock.now_us()
        self.reply(answer)

    def expire(self) -> None:
        """Whatever comes now comes too late."""
        if not self.done and self.node.life == self.life:
            self.done = True
            self.fail(TimeoutError("no answer in time"))


class World:
    """Runs once."""

    def __init__(self, setup: Setup, ledger_type: type[LeaseLedger] = LeaseLedger) -> None:
        self.setup, self.ledger_type = setup, ledger_type
        self.chance = random.Random(f"{setup.seed} world")
        self.loop = VirtualLoop()
        self.limits = as_limits(setup.limits)
        self.spare = MemoryStore()
        self.ledger = Ledger()
        self.spent: list[Spent] = []
        self._reported: dict[int, int] = {}
        self.validity_us = setup.lease.validity_us if setup.lease else 0
        self.keys = [f"key {number}" for number in range(setup.keys)]
        self._subjects = {NAMES.subject(key): key for key in self.keys}
        self._weights = list(accumulate((rank + 1) ** -setup.zipf for rank in range(setup.keys)))
        self._over = False
        self.server = Server(self.limits, self._clock())
        awaited = {"yes": lambda number: True, "no": lambda number: False, "half": lambda number: number % 2 == 0}
        self.nodes = [
            Node(self, number, self._clock(), awaited[setup.awaited](number)) for number in range(setup.nodes)
        ]

    def _clock(self) -> SkewedClock:
        """Chance is asked alike for every setup, so that twins have the same clocks."""
        start, ppm = self.chance.randrange(10**15), self.chance.randint(-100, 100) * self.setup.drift_ppm // 100
        return SkewedClock(self.loop, start if self.setup.skewed_clocks else 10**15, ppm)

    def run(self, *, close: bool = False) -> World:
        """To the end, and until all is quiet; then in good order, if the nodes are to be closed."""
        log = logging.getLogger("headgate")
        disabled, log.disabled = log.disabled, True  # lost refunds are daily bread here
        try:
            self._run(close)
            self._over = True
            self.loop.let_go()
        finally:
            log.disabled = disabled
        return self

    def _run(self, close: bool) -> None:
        setup, loop = self.setup, self.loop
        for node in self.nodes:
            self._next(node, self.demand(node.number))
            self._plan_troubles(node)
        for second in setup.restarts:
            loop.at(round(second * SECOND), self.server.restart)
        for second, away in setup.stops:
            for node in self.nodes:
                loop.at(round(second * SECOND), self.cut_off, node, round(away * SECOND))
        loop.run(round(setup.seconds * SECOND))
        settle = 3 * self.validity_us + round((200 * setup.deadline + setup.cut_off) * SECOND)
        loop.run(loop.now + settle)
        if close:
            for node in self.nodes:
                loop.call_soon(node.close)
            loop.run(loop.now + settle)

    def demand(self, number: int) -> Iterator[tuple[int, str, int]]:
        """The same for a seed, whatever else happens."""
        chance = random.Random(f"{self.setup.seed} demand of {number}")
        ends = [start for start, _ in self.setup.phases[1:]] + [self.setup.seconds]
        for (start, rates), end in zip(self.setup.phases, ends, strict=True):
            at, stop, rate = start * SECOND, end * SECOND, rates[number] / SECOND
            while rate and (at := at + chance.expovariate(rate)) < stop:
                key = chance.choices(self.keys, cum_weights=self._weights)[0] if len(self.keys) > 1 else self.keys[0]
                yield int(at), key, chance.randint(1, self.setup.most_cost) if self.setup.most_cost > 1 else 1

    def _next(self, node: Node, demand: Iterator[tuple[int, str, int]]) -> None:
        coming = next(demand, None)
        if coming is not None:
            self.loop.at(coming[0], self._arrive, node, coming[1], coming[2], demand)

    def _arrive(self, node: Node, key: str, cost: int, demand: Iterator[tuple[int, str, int]]) -> None:
        node.hit(key, cost)
        self._next(node, demand)

    def _plan_troubles(self, node: Node) -> None:
        setup, chance = self.setup, self.chance
        for rate, begin in ((setup.crashes, self._crash), (setup.partitions, self.cut_off)):
            at = 0.0
            while rate and (at := at + chance.expovariate(rate)) < setup.seconds:
                self.loop.at(round(at * SECOND), begin, node, round(chance.uniform(0, setup.cut_off) * SECOND))

    def _crash(self, node: Node, away: int) -> None:
        if node.alive:
            node.crash()
            self.loop.at(self.loop.now + away, node.start)

    def cut_off(self, node: Node, away: int) -> None:
        node.cut_until = max(node.cut_until, self.loop.now + away)

    def carry(
        self, node: Node, command: Command, reply: Callable[[Any], None], fail: Callable[[BaseException], None]
    ) -> None:
        """Send a command on its trip."""
        if self._over:
            return fail(TimeoutError("the world has ended"))
        self.ledger.trips[command.mode] += 1
        if command.mode != HEARTBEAT:
            self.ledger.by_second[self.loop.now // SECOND] += 1
        if command.mode == GIVE:
            self.ledger.sent_back += self.server.units_of(command)
        trip = Trip(node, command, reply, fail)
        self.loop.at(self.loop.now + self.delay(), trip.there)
        self.loop.at(self.loop.now + round(self.setup.deadline * SECOND), trip.expire)
        return None

    def count(self, node: Node) -> int:
        """The nodes that reported themselves within the last 15 seconds."""
        self._reported[node.number] = self.loop.now
        return sum(at > self.loop.now - 15 * SECOND for at in self._reported.values())

    def delay(self) -> int:
        """Of one way."""
        return int(self.chance.expovariate(1) * self.setup.latency * SECOND) + 1

    def loses(self, node: Node) -> bool:
        """Whether what arrives now does not."""
        return self.loop.now < node.cut_until or (self.setup.loss > 0 and self.chance.random() < self.setup.loss)

    def key_of(self, command: Command) -> str:
        """Names tell nothing, unless the keys are known."""
        return self._subjects[command.subject]

    @property
    def admitted(self) -> int:
        """Units."""
        return sum(each.units for each in self.spent)

    @property
    def trips(self) -> int:
        """Round trips, of whatever kind."""
        return sum(self.ledger.trips.values())
