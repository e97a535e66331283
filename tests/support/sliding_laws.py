"""The bound of leased sliding windows, and the worlds to try it on.

A sliding window of n slots admits at most (j + 1) * limit in j whole periods, and no more in n - 1 slots after them; in
the slot that follows, in which the oldest slot leaves, it admits the limit once more, evenly. A fleet that leases
admits in a time t at most what the window admits in t + validity. docs/leases.md has the proof.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.leases.terms import Lease
from headgate.stores.redis.compiled import GIVE, Command
from tests.support.lease_server import Server
from tests.support.lease_setup import Setup, Spent
from tests.support.lease_world import World
from tests.support.virtual import SkewedClock

if TYPE_CHECKING:
    from headgate.stores.leases.ledger import LeaseLedger

ROUNDING: Final = 2
"""Microseconds: each clock is read in whole ones."""
PARTS: Final = 4
"""The bound is tried at this many points of each of its first rises, and where each later rise begins."""


def admits(limit: Limit, span_us: float) -> int:
    """Return the most units that a sliding window admits in an interval of this length."""
    slot: float = limit.period_us / limit.params.slots
    periods, rest = divmod(span_us, limit.period_us)
    ramp = max(0.0, rest - (limit.period_us - slot)) / slot
    return int(periods + 1) * limit.amount + ceil(limit.amount * ramp)


class Forgotten(NamedTuple):
    """Units that a server may admit once more, since it lost their charges or its clock stepped ahead."""

    at: int
    counts_until: int
    """Intervals that begin later are not concerned: the slot in which the charges were lost has ended, and so has each
    lease from it."""
    units: int
    ahead: int = 0
    """Microseconds by which all charges are older at once."""


def beyond_sliding(world: World, limit: Limit, spents: list[Spent]) -> list[str]:
    """In every interval t at most what the window admits in t + validity."""
    part, span, at = fullest_window(world, limit, spents)
    return [f"{limit} in {span} us until {at}: {part:.4f} of what may be admitted"] if part > 1 else []


def fullest_window(world: World, limit: Limit, spents: list[Spent]) -> tuple[float, int, int]:
    """Return the largest part of the bound that was admitted in any of the intervals, its length and its end."""
    lost = list(forgotten(world, limit))
    off = 1 + world.setup.drift_ppm / 1e6
    worst = (0.0, 0, 0)
    for span in spans(world, limit, spents[-1].at - spents[0].at):
        length = (span + world.validity_us * off) * off + ROUNDING + limit.params.tick
        most = admits(limit, length)
        total = first = 0
        for at, _, units, _, _ in spents:
            total += units
            while spents[first].at < at - span:
                total -= spents[first].units
                first += 1
            if total > worst[0] * most:
                begin = spents[first].at
                here = [each for each in lost if each.at <= at and begin <= each.counts_until]
                again = admits(limit, length + sum(each.ahead for each in here)) + sum(each.units for each in here)
                worst = max(worst, (total / again, span, at))
    return worst


def spans(world: World, limit: Limit, longest: int) -> Iterator[int]:
    """The lengths to try: one instant, where the bound begins to rise in each period, and points of the rise."""
    slot = limit.period_us / limit.params.slots
    yield 0
    for periods in range(1, 2 + (longest + world.validity_us) // limit.period_us):
        for part in range(PARTS if periods <= PARTS else 1):
            span = int(periods * limit.period_us - slot + slot * part / PARTS) - world.validity_us
            if span > 0:
                yield span


def forgotten(world: World, limit: Limit) -> Iterator[Forgotten]:
    """What the server lost: a limit at each restart, and the charges that its replica had not heard of."""
    effect = ceil((limit.period_us / limit.params.slots + world.validity_us) * (1 + world.setup.drift_ppm / 1e6)) + 2
    for second in world.setup.restarts:
        at = round(second * SECOND)
        yield Forgotten(at, at + effect, limit.amount + 1)
    if isinstance(world, Overloaded):
        for at, units, jump in world.replicated.lost:
            yield Forgotten(at, at + effect, units + 1, max(0, jump))


class Replayed:
    """The clock of a server: it steps at a failover, and stands at the instant of a command that is replayed."""

    def __init__(self, clock: SkewedClock) -> None:
        self.clock = clock
        self.apart = 0
        self.replaying: int | None = None

    def now_us(self) -> int:
        return self.clock.now_us() + self.apart if self.replaying is None else self.replaying

    @property
    def real(self) -> int:
        return self.clock.loop.now

    def at(self, real: int) -> int:
        return self.clock.at(real)


class Replicated(Server):
    """A server whose replica is behind: at a failover it takes over without the last commands."""

    def __init__(self, limits: tuple[Limit, ...], clock: SkewedClock) -> None:
        self._heard: list[tuple[int, int, Command, int]] = []
        """The real instant, the server's instant, the command and the units that it charged."""
        self.lost: list[tuple[int, int, int]] = []
        """The instant of each failover, the units whose charges were lost, and the step of the clock."""
        self._replayed: Any = Replayed(clock)
        super().__init__(limits, self._replayed)

    def restart(self) -> None:
        """Forget everything; the replica too."""
        super().restart()
        self._heard.clear()

    def answer(self, command: Command) -> tuple[Any, int]:
        answer, units = super().answer(command)
        real, charged = self._replayed.real, 0 if command.mode == GIVE else units
        self._heard.append((real, self.clock.now_us(), command, charged))
        return answer, units

    def fail_over(self, real: int, lag: int, jump: int) -> None:
        """Go back to the state of `lag` microseconds ago, by a clock that is ahead by `jump`, or behind."""
        since = real - lag
        heard = [each for each in self._heard if each[0] <= since]
        self.lost.append((real, sum(units for at, _, _, units in self._heard if at > since), jump))
        self.restart()
        self._replayed.apart += jump
        for _, self._replayed.replaying, command, _ in heard:
            super().answer(command)
        self._replayed.replaying = None
        self._heard = heard


Times = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Overload(Setup):
    """A world in which the server has troubles of its own. Pairs of an instant and a duration, in seconds."""

    slow: Times = ()
    """Replies take a hundred times as long."""
    stopped: Times = ()
    """No node reaches the server."""
    failovers: Times = ()
    """A replica takes over that is behind by the duration."""
    apart: float = 0.0
    """The clock of a replica differs by at most this many seconds."""


class Overloaded(World):
    """Runs an `Overload`."""

    setup: Overload

    def __init__(self, setup: Overload, *given: type[LeaseLedger]) -> None:
        super().__init__(setup, *given)
        self.replicated = Replicated(self.limits, self.server.clock)
        self.server = self.replicated
        for at, seconds in setup.stopped:
            for node in self.nodes:
                self.loop.at(round(at * SECOND), self.cut_off, node, round(seconds * SECOND))
        for at, seconds in setup.failovers:
            self.loop.at(round(at * SECOND), self._fail_over, round(seconds * SECOND))

    def _fail_over(self, lag: int) -> None:
        apart = round(self.setup.apart * SECOND)
        self.replicated.fail_over(self.loop.now, lag, self.chance.randint(-apart, apart))

    def delay(self) -> int:
        now = self.loop.now / SECOND
        return super().delay() * (100 if any(at <= now < at + seconds for at, seconds in self.setup.slow) else 1)


LIMITS: Final = (
    "100/second by sliding-window", "40/200ms by sliding-window", "150/500ms by sliding-window/2",
    "200/second by sliding-window/5", "60/300ms by sliding-window/7", "500/5s by sliding-window/60",
    "100/second by sliding-window; 400/second burst 50", "100/500ms by sliding-window/10; 150/second by fixed-window",
)  # fmt: skip
LOADS: Final = (0.1, 0.5, 0.9, 1.5, 4, 10, 30, 100)


def overload(seed: int) -> Overload:
    """Loads from a tenth of the limit to a hundred times, uneven nodes that come and go, and a server in trouble."""
    chance = random.Random(f"{seed} overload")
    limits, nodes = chance.choice(LIMITS), chance.choice((2, 5, 10, 20))
    rate, seconds = 200.0, chance.uniform(1.0, 2.5)
    starts = [0.0, *sorted(chance.uniform(0, seconds) for _ in range(chance.choice((0, 2, 5))))]
    skew = [chance.choice((0.1, 1.0, 1.0, 10.0)) for _ in range(nodes)]

    def phase(load: float) -> tuple[float, ...]:
        here = [weight * (chance.random() < 0.8) for weight in skew]
        return tuple(load * rate * weight / (sum(here) or 1) for weight in here)

    def times(most: float) -> Times:
        return tuple((chance.uniform(0, seconds), chance.uniform(0, most)) for _ in range(chance.choice((0, 0, 1, 2))))

    load = LOADS[seed % len(LOADS)]
    return Overload(
        seed=seed,
        limits=limits,
        lease=Lease(validity=chance.choice((0.02, 0.1, 0.3, 1.0)), share=chance.choice((0.1, 0.5, 1.0))),
        seconds=seconds,
        phases=tuple((start, phase(chance.choice((load, load, 0.1)))) for start in starts),
        awaited=chance.choice(("yes", "no", "half")),
        threads=4,
        latency=chance.choice((0.0005, 0.003)),
        loss=chance.choice((0.0, 0.01)),
        crashes=chance.choice((0.0, 0.0, 1.0)),
        restarts=tuple(chance.uniform(0, seconds) for _ in range(chance.choice((0, 0, 1)))),
        skewed_clocks=True,
        drift_ppm=chance.choice((0, 100)),
        greedy=chance.random() < 0.3,
        slow=times(0.5),
        stopped=times(0.5),
        failovers=() if ";" in limits else times(0.2),
        apart=chance.choice((0.0, 0.05)),
    )


def sliding(setup: Setup) -> Setup:
    """The same world with a sliding window in place of each other limit: of the same burst, in the same time."""
    chance = random.Random(f"{setup.seed} sliding")
    limit = World(setup).limits[0]
    slots = chance.choice((1, 1, 2, 3, 10))
    amount = max(10, limit.burst)  # a smaller one is a warning
    period_ms = max(20, limit.burst * limit.period_us // limit.amount // 1000)
    return replace(setup, limits=f"{amount}/{period_ms}ms by sliding-window/{slots}")
