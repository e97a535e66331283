"""Made traffic: (time in microseconds, key, cost), in the order of time, the same for the same seed.

    for time, key, cost in TRAFFIC["poisson"].requests(Scene(amount=100, clients=20, seed=7, for_us=10 * MINUTE)):
        ...

A generator of requests may be told each answer, by `send`: True if the request was admitted. Only `impatient` clients
listen. Where nobody tells them, they behave as if an exact sliding log of the limit had answered, so that one trace
can be given to several algorithms.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, count
from random import Random
from typing import Final, NamedTuple, TypeAlias

from headgate.clock import DAY, MILLISECOND, MINUTE, SECOND, WEEK
from headgate.errors import InvalidCall
from headgate.wording import shown

Request: TypeAlias = tuple[int, str, int]
"""Microseconds since the UTC epoch, the key, the cost."""
Requests: TypeAlias = Generator[Request, bool | None, None]
"""Requests in the order of time; `send` tells whether the last one was admitted."""

JITTER: Final = Fraction(1, 20)
"""How far a steady client is early or late, as a part of its interval: 0.3 s of 6 s."""
EDGE: Final = SECOND
"""The longest time before and after the end of a window in which the bursts of `seam` come."""
FIRST_MONDAY: Final = 4 * DAY
"""1970-01-05: windows of whole weeks begin on a Monday."""
RETRIES: Final = 5
PATIENCE: Final = (50 * MILLISECOND, 150 * MILLISECOND)
"""The shortest and the longest time after which an impatient client asks again."""
SWING: Final = 0.8
"""The busiest moment of a day has 1.8 of its average rate, the quietest 0.2."""
BUSIEST: Final = Fraction(2, 3)
"""The part of a day, from midnight UTC, after which it is busiest: 16:00."""


@dataclass(frozen=True)
class Scene:
    """The numbers of made traffic: a limit, and clients that are limited by it."""

    amount: int = 10
    period_us: int = MINUTE
    rate: float | None = None
    """Requests a second, of all clients together; by default each client asks for exactly its limit."""
    clients: int = 1
    seed: int = 0
    for_us: int | None = None
    """How long requests come; by default they never end."""
    start_us: int = 0

    def __post_init__(self) -> None:
        for name in ("amount", "period_us", "clients"):
            if getattr(self, name) < 1:
                raise InvalidCall(f"{name} is a whole number from 1; got {shown(getattr(self, name))}")
        if self.rate is not None and not 1 / SECOND <= self.rate <= SECOND:
            raise InvalidCall(
                f"rate is a number of requests a second, from 0.000001 to {SECOND}; got {shown(self.rate)}"
            )

    @property
    def interval(self) -> Fraction:
        """Microseconds between two requests of one client, on average."""
        if self.rate is None:
            return Fraction(self.period_us, self.amount)
        return self.clients * SECOND / Fraction(self.rate).limit_denominator(SECOND)

    @property
    def in_a_period(self) -> int:
        """Requests of one client in a period, at least 1."""
        return max(1, round(self.period_us / self.interval))

    @property
    def end_us(self) -> float:
        """The instant at which requests end."""
        return math.inf if self.for_us is None else self.start_us + self.for_us

    def names(self, name: str = "client") -> list[str]:
        """Return a name for each client."""
        return [f"{name}-{number}" for number in range(self.clients)]

    def chance(self, purpose: str) -> Random:
        """Return a new source of chance for one purpose: the same numbers each time, whatever is drawn elsewhere."""
        return Random(f"{self.seed} {purpose}")  # noqa: S311 - repeatable chance

    def arrivals(self, speed: float = 1.0) -> Iterator[int]:
        """Yield random instants, independent of each other, `speed` times as many as the rate."""
        chance, mean, since = self.chance("arrivals"), float(self.interval / self.clients) / speed, 0.0
        while True:
            since += chance.expovariate(1) * mean
            if self.start_us + since >= self.end_us:
                return
            yield self.start_us + int(since)


def steady(scene: Scene) -> Requests:
    """Each client asks at equal intervals, early or late by at most a twentieth of one; phases are spread evenly."""
    chance, interval = scene.chance("jitter"), scene.interval
    jitter = int(interval * JITTER)
    step = interval / scene.clients
    keys = scene.names()
    waiting: list[tuple[int, int]] = []
    """Requests whose time is known but may not be the next: another client's jitter may bring it before them."""
    for turn in count():
        due = scene.start_us + turn * step.numerator // step.denominator
        over = due >= scene.end_us
        while waiting and (over or waiting[0][0] < due - jitter):
            time, client = heapq.heappop(waiting)
            yield time, keys[client], 1
        if over:
            return
        heapq.heappush(waiting, (max(scene.start_us, due + chance.randint(-jitter, jitter)), turn % scene.clients))


def poisson(scene: Scene) -> Requests:
    """Requests come at random, each from any of the clients."""
    chance, keys = scene.chance("clients"), scene.names()
    for time in scene.arrivals():
        yield time, chance.choice(keys), 1


def batches(scene: Scene) -> Requests:
    """Each client sends as many requests as its limit has at one instant, as a job of cron does; phases are random."""
    chance, cycle = scene.chance("phases"), int(scene.interval * scene.amount)
    phases = sorted((chance.randrange(max(1, cycle)), key) for key in scene.names())
    for first in count(scene.start_us, max(1, cycle)):
        for phase, key in phases:
            if first + phase >= scene.end_us:
                return
            for _ in range(scene.amount):
                yield first + phase, key, 1


def seam(scene: Scene) -> Requests:
    """At every second end of a window, each account sends what a period allows just before it, and again just after."""
    keys, size, period = scene.names("account"), scene.in_a_period, scene.period_us
    edge = min(EDGE, period // 4)
    origin = 0 if period % WEEK else FIRST_MONDAY
    first = scene.start_us - (scene.start_us - origin) % period + period
    for end in count(first, 2 * period):
        for turn in range(2 * size):
            time = end - edge + edge * turn // size
            if time >= scene.end_us:
                return
            if time >= scene.start_us:
                yield from ((time, key, 1) for key in keys)


def impatient(scene: Scene) -> Requests:
    """Requests come at random; a client that is refused asks again after about 0.1 s, up to five times."""
    chance, pauses, keys = scene.chance("clients"), scene.chance("pauses"), scene.names()
    passed: dict[str, deque[int]] = {key: deque() for key in keys}
    arrivals = scene.arrivals()
    pending = [(time, 0, chance.choice(keys), RETRIES) for time in [next(arrivals, None)] if time is not None]
    for serial in count(1):
        if not pending:
            return
        time, _, key, left = heapq.heappop(pending)
        admitted = yield time, key, 1
        if admitted is None:
            admitted = _fits(passed[key], time, scene)
        again = time + pauses.randint(*PATIENCE)
        if not admitted and left and again < scene.end_us:
            heapq.heappush(pending, (again, serial, key, left - 1))
        if left == RETRIES and (fresh := next(arrivals, None)) is not None:
            heapq.heappush(pending, (fresh, serial, chance.choice(keys), RETRIES))


def _fits(stamps: deque[int], time: int, scene: Scene) -> bool:
    """Decide as an exact sliding log does."""
    while stamps and stamps[0] <= time - scene.period_us:
        stamps.popleft()
    if len(stamps) >= scene.amount:
        return False
    stamps.append(time)
    return True


def diurnal(scene: Scene) -> Requests:
    """Requests come at random, most at 16:00 UTC and nine times fewer at 4:00; the rate is the average of a day."""
    chance, keys = scene.chance("clients"), scene.names()
    for time in scene.arrivals(1 + SWING):
        now = 1 + SWING * math.cos(2 * math.pi * (time % DAY / DAY - float(BUSIEST)))
        if chance.random() * (1 + SWING) < now:
            yield time, chance.choice(keys), 1


def zipf(scene: Scene) -> Requests:
    """Requests come at random; the second client sends half as many as the first, the third a third, and so on."""
    chance, keys = scene.chance("clients"), scene.names()
    weights = list(accumulate(1 / rank for rank in range(1, scene.clients + 1)))
    for time in scene.arrivals():
        yield time, chance.choices(keys, cum_weights=weights)[0], 1


def rotating(scene: Scene) -> Requests:
    """Attackers try stolen passwords at random times, and take a new key as soon as one has used its amount."""
    chance, serials = scene.chance("clients"), count(scene.clients)
    held = [[number, scene.amount] for number in range(scene.clients)]
    for time in scene.arrivals():
        key = chance.choice(held)
        yield time, f"stolen-{key[0]}", 1
        key[1] -= 1
        if not key[1]:
            key[:] = next(serials), scene.amount


class Traffic(NamedTuple):
    """A kind of traffic."""

    about: str
    requests: Callable[[Scene], Requests]


TRAFFIC: Final = {
    "steady": Traffic("clients that poll at exactly their limit, early or late by a twentieth", steady),
    "poisson": Traffic("requests at random, from any of the clients", poisson),
    "batches": Traffic("clients that send their whole amount at one instant, again and again", batches),
    "seam": Traffic("accounts that send twice their amount around the end of a window", seam),
    "impatient": Traffic("clients that ask again at once when they are refused, up to five times", impatient),
    "diurnal": Traffic("requests at random, nine times as many at the peak of a day as at night", diurnal),
    "zipf": Traffic("a few clients with most of the requests, and many with few", zipf),
    "rotating": Traffic("attackers that change their key before its limit is used up", rotating),
}
