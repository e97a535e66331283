"""A world of nodes that lease: virtual time, one server, wires that fail. Everything follows from a seed.

The gates are the real ones. Their steps, which know no I/O, are carried over wires that delay and lose, to a server
that runs the reference steps by a clock of its own. What was charged, spent and given back is written down, and
`lease_laws.py` says what must be true of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

from headgate.clock import SECOND
from headgate.engine import Decision
from headgate.engine.modes import PEEK, TAKE
from headgate.errors import StoreError
from headgate.limit import Limit, as_limits
from headgate.stores import MemoryStore
from headgate.stores.fallback import Fallback
from headgate.stores.leases.grants import Grant, Unused
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.returns import MOMENT
from headgate.stores.leases.terms import Lease, checked_terms
from headgate.stores.redis.bound import BoundLimits, Space
from headgate.stores.redis.bound_async import AsyncBoundLimits
from headgate.stores.redis.compiled import AHEAD, GIVE, HEARTBEAT, Command
from headgate.stores.redis.leased import AsyncLeasedLimits, LeasedLimits
from headgate.stores.redis.names import Names
from headgate.stores.redis.refusal_cache import RefusalCache
from headgate.stores.redis.scripts import sent_params
from headgate.testing import ReferenceStore
from tests.support.virtual import SkewedClock, VirtualLoop

NAMES: Final = Names("world", b"")
BACKLOG: Final = 64
"""Requests that wait for a thread of their node; who comes then is turned away."""
WORD: Final = 8

DEFAULT: Final = Lease()

Phases = tuple[tuple[float, tuple[float, ...]], ...]
"""From which second on each node is asked how often a second."""


@dataclass(frozen=True)
class Setup:
    """A world, before it runs. Seconds, and rates a second."""

    seed: int = 0
    limits: str = "1000/second"
    lease: Lease | None = DEFAULT
    """None: every decision is asked for at the server."""
    seconds: float = 5.0
    phases: Phases = ((0.0, (100.0,) * 10),)
    keys: int = 1
    zipf: float = 0.0
    """0: all keys are asked for alike; 1: the second half as often as the first, the third a third as often."""
    most_cost: int = 1
    awaited: str = "no"
    """Which nodes run event loops: yes, no, or half of them."""
    threads: int = 1
    """Of each other node."""
    latency: float = 0.0005
    """One way, on average."""
    deadline: float = 0.05
    loss: float = 0.0
    """Of requests, and of replies."""
    crashes: float = 0.0
    """Of each node; it comes back after a part of `cut_off`, and so do those that were partitioned off."""
    partitions: float = 0.0
    cut_off: float = 1.0
    restarts: tuple[float, ...] = ()
    """When the server forgets everything."""
    stops: tuple[tuple[float, float], ...] = ()
    """When the server does not answer, and for how long."""
    skewed_clocks: bool = False
    drift_ppm: int = 0
    """Clocks run fast or slow by at most so much."""
    remember: float = 1.0
    greedy: bool = False
    """Leases of any size, whatever the demand, at any pace: their safety must not hang on it."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.phases[0][1])


class Spent(NamedTuple):
    """Units that were admitted: when by real time, where, and whether from a lease."""

    at: int
    key: str
    units: int
    node: int
    leased: bool


@dataclass
class Ledger:
    """Units, by what became of them; and answers."""

    charged: int = 0
    lost: int = 0
    """Charged, but the reply came too late or never."""
    received: int = 0
    """Granted as leases."""
    handed: int = 0
    """Taken out of the ledger, to be given back."""
    sent_back: int = 0
    given_back: int = 0
    """Arrived there."""
    worn: int = 0
    """Not worth giving back: the bucket has filled up meanwhile, or the window has ended."""
    crashed: int = 0
    asked: int = 0
    answered: int = 0
    yes: int = 0
    waited: int = 0
    """Answers that were not there at once."""
    turned_away: int = 0
    trips: Counter[int] = field(default_factory=Counter)
    """Commands, by mode."""
    by_second: Counter[int] = field(default_factory=Counter)
    """Commands about keys, by the second in which they were sent."""
    told: list[int] = field(default_factory=list)
    """The waits of refusals, in microseconds."""
    misled: int = 0
    """Callers who came back when they were told to, and were refused by what was known before."""


class Server:
    """The reference steps, by a clock of its own."""

    def __init__(self, limits: tuple[Limit, ...], clock: SkewedClock) -> None:
        self.limits, self.clock = limits, clock
        self._params = tuple(len(sent_params(limit)) for limit in limits)
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self._decider: Any = ReferenceStore(clock=self.clock).bind("server", self.limits)

    def units_of(self, command: Command) -> int:
        """How many are asked for, or given back."""
        return self._words(command)[self._params[0]]

    def answer(self, command: Command) -> tuple[Any, int]:
        """The reply, and how many units were charged or given back."""
        subject = command.subject.decode()
        if command.mode == GIVE:
            self._give(subject, self._words(command))
            return 1, self.units_of(command)
        units, mode = self.units_of(command), command.mode
        if mode == AHEAD:
            units, mode = max(units, self._shared(subject, self._words(command))), TAKE
        decision = self._decider.run(subject, (units,) * len(self.limits), mode)
        granted = [decision.calls[0].cost] if command.mode == AHEAD else []
        words = [self.clock.now_us(), *granted, *map(int, decision._answers)]
        return struct.pack(f"<{len(words)}q", *words), decision.granted

    def _shared(self, subject: str, words: tuple[int, ...]) -> int:
        """How many units a question ahead of need may take."""
        most, *parts = words[-len(self.limits) - 1 :]
        for verdict, part in zip(self._decider.run(subject, (0,) * len(parts), PEEK).verdicts, parts, strict=True):
            left = verdict.remaining
            most = min(most, left * left // part if left < part else left)
        return most

    def _give(self, subject: str, words: tuple[int, ...]) -> None:
        units, marks, at = [], [], 0
        for params in self._params:
            at += params + 3
            units.append(words[at - 3])
            marks.append((words[at - 2], words[at - 1]))
        self._decider.give((subject,) * len(units), tuple(units), tuple(marks))

    @staticmethod
    def _words(command: Command) -> tuple[int, ...]:
        packed = command.arguments[0].split(b"\r\n", 1)[1][:-2]
        return struct.unpack(f"<{len(packed) // WORD}q", packed)


class SyncLeased(LeasedLimits):
    """Its steps are handed out, to be carried by the world."""

    look_after: Callable[[], None]

    def _exchange(self, steps: Any) -> Any:
        return steps

    def _refilled(self, key: str, units: int, most: int) -> Any:
        decision = yield from self._refill(key, units, most)
        if decision is not None and decision.allowed:
            self.look_after()
        return decision


class SyncExact(BoundLimits):
    def _exchange(self, steps: Any) -> Any:
        return steps


class NoCluster:
    clustered = False


class Node:
    """A process: its clock, its gate and its ledger."""

    def __init__(self, world: World, number: int, clock: SkewedClock, awaited: bool) -> None:
        self.world, self.number, self.clock, self.awaited = world, number, clock, awaited
        self.loop, self.ledger = world.loop, world.ledger
        self.life = 0
        """Which one this is: what was sent in an earlier one is answered to nobody."""
        self.cut_until = 0
        self.start()

    def start(self) -> None:
        """Begin with nothing."""
        lease, limits = self.world.setup.lease, self.world.limits
        self.alive = True
        self.busy = 0
        self.returning = False
        self.told: dict[tuple[str, int], tuple[int, int]] = {}
        """For a key and cost: the first instant to which callers were put off, and when the first of them was."""
        self.heard: dict[str, int] = {}
        """When the server last answered about a key."""
        self.backlog: deque[tuple[str, int]] = deque()
        refusals = RefusalCache(round(self.world.setup.remember * SECOND), self.clock.now_us)
        self._fallback = Fallback("deny", self.world.spare, "local")
        topology: Any = NoCluster()
        renewal: Any = None
        space = Space(NAMES, topology, refusals, None, renewal)
        pipelines: Any = lambda: self  # noqa: E731
        self.gate: Any
        if self.awaited:
            kind = AsyncLeasedLimits if lease else AsyncBoundLimits
            self.gate = kind(space, limits, pipelines)
        else:
            self.gate = SyncLeased(space, limits) if lease else SyncExact(space, limits)
            self.gate.look_after = self._look_after
        self.leases: Any = None
        self._ask: Callable[[str, int], Any] = self._run
        if lease:
            self.gate.lease(checked_terms(lease, limits), self.clock, lambda nodes: nodes)
            self.leases = self.gate._ledger = self._watched(lease)
            self.gate.attach(self._run, None, None)
            self._ask = self.gate._tokens.hit

    def _run(self, key: str, cost: int, limit: None = None) -> Any:
        return self.gate.run(key, (cost,) * len(self.world.limits))

    def _watched(self, terms: Lease) -> LeaseLedger:
        """The ledger, watched."""
        leases: Any = self.world.ledger_type(self.world.limits, terms, self.gate._tokens, self.gate._now)
        leases.pace._chance = random.Random(f"{self.world.setup.seed} pace of {self.number}").random
        spend, unused, give_back, low = leases.spend, leases.unused, leases._give_back, leases.low
        keep = leases.keep

        def spend_seen(key: str, units: int) -> Decision | None:
            decision: Decision | None = spend(key, units)
            if decision is not None:
                self.spent(key, units)
            return decision

        def unused_seen(most: int | None = None) -> list[Unused]:
            given: list[Unused] = unused(most)
            self.ledger.handed += sum(each.units for each in given)
            return given

        def give_back_seen(grant: Grant, units: int, now: int) -> None:
            waiting = len(leases._unused)
            give_back(grant, units, now)
            if len(leases._unused) == waiting:
                self.ledger.worn += units

        life = self.life

        def keep_seen(kept: list[Unused]) -> None:
            if self.alive and self.life == life:  # what a crash interrupts is in no ledger any more
                self.ledger.handed -= sum(each.units for each in kept)
            keep(kept)

        leases.keep = keep_seen
        leases.spend, leases.unused, leases._give_back = spend_seen, unused_seen, give_back_seen
        if self.world.setup.greedy:
            most, chance = min(limit.burst for limit in self.world.limits), self.world.chance
            leases.wanted = lambda key, units: max(units + 1, chance.randrange(1, most + 1))
            leases.low = lambda key: low(key) and chance.randrange(1, most + 1)
            leases.pace.parts = lambda held: (0,) * len(self.world.limits)
            leases.refused = lambda key, units, missed=0: None
        return leases  # type: ignore[no-any-return]

    def crash(self) -> None:
        """What it holds vanishes; what is on its way comes too late."""
        self.ledger.crashed += self.held()
        self.life += 1
        self.alive = False
        if self.awaited and self.leases is not None and self.gate._sweeping is not None:
            self.gate._sweeping.cancel()

    def held(self) -> int:
        """Units in its ledger."""
        if not self.alive or self.leases is None:
            return 0
        each = self.leases._held.values()
        ahead = sum(held.following.units for held in each if held.following is not None)
        due = sum(given.units for given in self.leases._unused)
        return int(sum(held.lease.tokens for held in each) + ahead + due)

    def hit(self, key: str, cost: int) -> None:
        """A request."""
        if not self.alive:
            return
        self.ledger.asked += 1
        if self.awaited or self.busy < self.world.setup.threads:
            self._begin(key, cost)
        elif len(self.backlog) < BACKLOG:
            self.backlog.append((key, cost))
        else:
            self.ledger.turned_away += 1

    def _begin(self, key: str, cost: int) -> None:
        came, answer = self.clock.now_us(), self._ask(key, cost)
        if isinstance(answer, Decision):  # straight from the lease cache: the ledger was not asked
            self.spent(key, cost)
            self._answered((key, cost, came), answer)
        elif self.awaited:
            self.ledger.waited += 1
            self.loop.create_task(self._or_denied(key, cost, answer)).add_done_callback(
                lambda task: None if task.cancelled() else self._answered((key, cost, came), task.result())
            )
        else:
            self.busy += 1
            trips = self.world.trips
            done = lambda decision: self._free((key, cost, came), decision)  # noqa: E731
            self._carry(answer, answer.send, None, done, lambda: self._denied(key, cost))
            self.ledger.waited += self.world.trips > trips

    def _denied(self, key: str, cost: int) -> Decision:
        """What a gate answers where its store cannot."""
        return self._fallback.decide(self.world.limits, key, (cost,) * len(self.world.limits), TAKE, 0)

    async def _or_denied(self, key: str, cost: int, answer: Any) -> Decision:
        try:
            decision: Decision = await answer
        except StoreError:
            return self._denied(key, cost)
        return decision

    def _answered(self, call: tuple[str, int, int], decision: Decision) -> None:
        self.ledger.answered += 1
        self.ledger.yes += decision.allowed
        if not decision.allowed and not decision.degraded and decision.retry_us > 0:
            self._told(*call, decision.retry_us)

    def _told(self, key: str, cost: int, came: int, wait: int) -> None:
        """Compare the refusal of a caller that came at this instant with what callers were told before."""
        now = self.clock.now_us()
        self.ledger.told.append(wait)
        instant, since = self.told.get((key, cost), (0, -1))
        if self.heard.get(key, 0) >= since:  # the server has said something else since
            self.told[key, cost] = now + wait, now
            return
        held = self.leases._held.get(key) if self.leases is not None else None
        self.ledger.misled += came >= instant and (held is None or held.asking is None)
        self.told[key, cost] = min(instant, now + wait), since

    def spent(self, key: str, units: int, *, leased: bool = True, at: int | None = None) -> None:
        """Write it down."""
        self.world.spent.append(Spent(self.loop.now if at is None else at, key, units, self.number, leased))

    def _look_after(self) -> None:
        """What the thread for returns does, by virtual time."""
        pause = self.leases.next_return()
        if pause is not None and not self.returning:
            self.returning = True
            self.loop.at(self.loop.now + max(round(MOMENT * SECOND), pause), self._return_due, self.life)

    def _return_due(self, life: int) -> None:
        if self.alive and self.life == life:
            steps = self.gate._return()
            self._carry(steps, steps.send, None, self._returned)

    def _returned(self, _: None) -> None:
        self.returning = False
        self._look_after()

    def _free(self, call: tuple[str, int, int], decision: Decision) -> None:
        self.busy -= 1
        self._answered(call, decision)
        while self.backlog and self.busy < self.world.setup.threads:
            self._begin(*self.backlog.popleft())

    def _carry(
        self,
        steps: Generator[Command, Any, Any],
        go_on: Callable[[Any], Command],
        what: Any,
        done: Callable[..., None],
        denied: Callable[[], Decision] | None = None,
    ) -> None:
        """Take one step in a thread; the reply leads to the next."""
        try:
            command = go_on(what)
        except StopIteration as end:
            return done(end.value)
        except StoreError:
            assert denied is not None
            return done(denied())
        self.world.carry(
            self,
            command,
            lambda reply: self._carry(steps, steps.send, (reply, 0), done, denied),
            lambda error: self._carry(steps, steps.throw, error, done, denied),
        )
        return None

    def exchange(self, command: Command) -> asyncio.Future[Any]:
        """What pipelines do."""
        future = self.loop.create_future()
        self.world.carry(self, command, lambda reply: future.set_result((reply, 0)), future.set_exception)
        return future

    def close(self) -> None:
        """In good order: everything is given back."""
        if self.alive and self.leases is not None:
            if self.awaited:
                self.loop.create_task(self.gate.aclose())
            else:
                steps = self.gate._return(-1)
                self._carry(steps, steps.send, None, lambda _: None)


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
        if mode == TAKE and self.units:
            self.node.spent(self.world.key_of(self.command), self.units, leased=False, at=self.decided)
        ledger.received += self.units * (mode == AHEAD)
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
