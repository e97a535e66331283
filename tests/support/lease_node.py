"""A node of a world of nodes that lease: a process with its clock, its gate and its ledger."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import SECOND
from headgate.engine import Decision, Tally
from headgate.engine.modes import TAKE
from headgate.errors import StoreError
from headgate.stores.fallback import Fallback
from headgate.stores.health import Health
from headgate.stores.leases.grants import Grant, Reply, Unused
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.returns import MOMENT
from headgate.stores.leases.terms import Lease, checked_terms
from headgate.stores.redis.bound import BoundLimits, Space
from headgate.stores.redis.bound_async import AsyncBoundLimits
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.leased import AsyncLeasedLimits, LeasedLimits
from headgate.stores.redis.names import Names
from headgate.stores.redis.refusal_cache import RefusalCache
from tests.support.inside_leases import (
    exchange_ledger,
    leases_held,
    return_steps,
    set_chance,
    set_rates,
    stop_sweeping,
    tokens_of,
    units_due,
    watch_give_back,
)
from tests.support.lease_setup import Spent
from tests.support.virtual import SkewedClock

if TYPE_CHECKING:
    from tests.support.lease_world import World

NAMES: Final = Names("world", b"")
SOON: Final = 50
"""Microseconds after which a thread that waits looks again."""
BACKLOG: Final = 64
"""Requests that wait for a thread of their node; who comes then is turned away."""


class SyncLeased(LeasedLimits):
    """Its steps are handed out, to be carried by the world."""

    look_after: Callable[[], None]

    def _exchange(self, steps: Any) -> Any:
        return steps

    def _wait_for(self, answer: Reply) -> Any:
        while not answer.is_set():
            yield None

    def _refilled(self, key: str, units: int, most: int) -> Any:
        decision = yield from self._refill(key, units, most)
        if decision is not None and decision.allowed:
            self.look_after()
        return decision


class SyncExact(BoundLimits):
    def _exchange(self, steps: Any) -> Any:
        return steps


class NoCluster:
    """One server, and what the process knows of its health."""

    clustered = False

    def __init__(self) -> None:
        self.health = Health()


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
            self.leases = exchange_ledger(self.gate, partial(self._watched, lease))
            self.gate.attach(self._run, None, None, Tally())
            self._ask = tokens_of(self.gate).hit

    def _run(self, key: str, cost: int, limit: None = None) -> Any:
        return self.gate.run(key, (cost,) * len(self.world.limits))

    def _watched(self, terms: Lease, tokens: Any, now: Callable[[], int]) -> LeaseLedger:
        """The ledger, watched."""
        leases: Any = self.world.ledger_type(self.world.limits, terms, tokens, now)
        set_chance(leases, random.Random(f"{self.world.setup.seed} pace of {self.number}").random)
        spend, unused, low = leases.spend, leases.unused, leases.low
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

        def give_back_seen(give_back: Callable[..., None], grant: Grant, units: int, now: int) -> None:
            waiting = len(units_due(leases))
            give_back(grant, units, now)
            if len(units_due(leases)) == waiting:
                self.ledger.worn += units

        life = self.life

        def keep_seen(kept: list[Unused]) -> None:
            if self.alive and self.life == life:  # what a crash interrupts is in no ledger any more
                self.ledger.handed -= sum(each.units for each in kept)
            keep(kept)

        leases.keep = keep_seen
        leases.spend, leases.unused = spend_seen, unused_seen
        watch_give_back(leases, give_back_seen)
        if self.world.setup.greedy:
            most, chance = min(limit.burst for limit in self.world.limits), self.world.chance
            leases.wanted = lambda key, units: max(units + 1, chance.randrange(1, most + 1))
            leases.low = lambda key: low(key) and chance.randrange(1, most + 1)
            set_rates(leases, ((1, 1, 0, 1),) * len(self.world.limits))
            leases.refused = lambda key, units, missed=0: None
        return leases  # type: ignore[no-any-return]

    def crash(self) -> None:
        """What it holds vanishes; what is on its way comes too late."""
        self.ledger.crashed += self.held()
        self.life += 1
        self.alive = False
        if self.awaited and self.leases is not None:
            stop_sweeping(self.gate)

    def held(self) -> int:
        """Units in its ledger."""
        if not self.alive or self.leases is None:
            return 0
        each = leases_held(self.leases).values()
        ahead = sum(held.following.units for held in each if held.following is not None)
        due = sum(given.units for given in units_due(self.leases))
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
        held = leases_held(self.leases).get(key) if self.leases is not None else None
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
            steps = return_steps(self.gate)
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
        steps: Generator[Command | None, Any, Any],
        go_on: Callable[[Any], Command | None],
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
        if command is None:  # the thread waits for the answer to another one's question
            self.loop.at(self.loop.now + SOON, self._look_again, self.life, steps, done, denied)
            return None
        self.world.carry(
            self,
            command,
            lambda reply: self._carry(steps, steps.send, (reply, 0), done, denied),
            lambda error: self._carry(steps, steps.throw, error, done, denied),
        )
        return None

    def _look_again(self, life: int, steps: Any, done: Callable[..., None], denied: Any) -> None:
        if self.life == life:
            self._carry(steps, steps.send, None, done, denied)

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
                steps = return_steps(self.gate, -1)
                self._carry(steps, steps.send, None, lambda _: None)
