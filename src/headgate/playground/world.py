"""The world of one page: virtual time, six lanes, and traffic that is made, clicked or read from a log."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headgate.clock import DAY, MILLISECOND, SECOND, HandClock, write_seconds
from headgate.errors import InvalidCall
from headgate.lab import TRAFFIC, Scene
from headgate.limit import Limit, as_limits
from headgate.playground.caption import Caption
from headgate.playground.lanes import lanes_of
from headgate.wording import shown, suggestion

PERIODS_SHOWN: Final = 3
BINS: Final = 420
"""Bins of the time that is shown: about two pixels each."""
MOST_A_FRAME: Final = 400
"""Requests in one frame. Time runs slower where more would come."""
SINGLE: Final = 60
"""Requests in one frame that are drawn one by one; more are counted in bins."""
FASTEST: Final = 200
RATES: Final = (0.1, 1_000.0)
MOST_AMOUNT: Final = 1_000
SHORTEST, LONGEST = 100 * MILLISECOND, DAY
LINES: Final = 4
"""Decisions of one frame that are told as text."""
CLICKS: Final = "clicks"
LOG: Final = "log"
HURRY: Final = 1.2
"""Seconds in which time runs to the seam of an attack, or over a gap of a log."""
Request = tuple[int, bool]
"""The time of a request, and whether it was asked for by hand."""


def limit_of(text: str) -> Limit:
    """Read the limit of a world; the error says what the playground can show."""
    found = as_limits(text)
    if len(found) != 1:
        raise InvalidCall("one limit at a time: write for instance 10/10s")
    limit = found[0]
    if limit.in_flight or limit.block_us or limit.name or " by " in f" {text.lower()} ":
        raise InvalidCall(
            "every algorithm runs at once: write an amount and a period, as in 10/10s, and perhaps a burst"
        )
    if not (0 < limit.amount <= MOST_AMOUNT and limit.burst <= MOST_AMOUNT and SHORTEST <= limit.period_us <= LONGEST):
        raise InvalidCall(f"the playground shows from 1 to {MOST_AMOUNT:,} requests, in 100 ms to 1 day")
    return limit


class World:
    """Everything that one page shows. The page sends what the user does, and gets frames of numbers."""

    def __init__(self, limit: str = "10/10s", seed: int = 1) -> None:
        self.seed = seed
        self.speed = 1.0
        self.rate: float | None = None
        self.paused = False
        self.traffic = "poisson"
        self._log: Sequence[int] = ()
        self._begun = 0
        self.restart(limit)

    def restart(self, text: str | None = None) -> None:
        """Begin anew, perhaps with another limit; nothing changes if the limit has a mistake."""
        if text is not None:
            self.limit = limit_of(text)
        self._begun += 1
        period = self.limit.period_us
        self.start = 1_000 * period  # windows begin with the world, and no state reaches back to the clock's zero
        self._clock = HandClock(self.start)
        self.now = self.start
        self.lanes = lanes_of(self.limit, self._clock)
        self.caption = Caption(self.limit)
        self._bin_us = max(1, PERIODS_SHOWN * period // BINS)
        self._bin = -1
        """The number of the present bin, from the start of the world."""
        self._asked: list[Request] = []
        self._requests = 0
        self._last = self.start
        """The time of the last request."""
        self._muted_until = self._hurry_until = 0
        self._hurry_speed = 0.0
        self._burst: tuple[int, list[int]] | None = None
        """The size of a burst that is not over, and what each lane had admitted before it."""
        self._begin_traffic()
        self._begin_frame()

    # What the user does

    def set_traffic(self, name: str) -> None:
        """Change the traffic from now on."""
        if name == LOG and not self._log:
            raise InvalidCall("no log was read: choose a file first")
        if name not in (CLICKS, LOG) and name not in TRAFFIC:
            raise InvalidCall(f"unknown traffic {shown(name)}: {suggestion(name, [CLICKS, LOG, *TRAFFIC])}")
        self.traffic = name
        if name == LOG:
            self.restart()
        self.caption.begin()
        self._begin_traffic()

    def set_log(self, times: Sequence[int]) -> None:
        """Replay these times of one client, in microseconds from the first."""
        self._log = times
        self.set_traffic(LOG)

    def set_rate(self, rate: float) -> None:
        """Change the requests a second."""
        if not RATES[0] <= rate <= RATES[1]:
            raise InvalidCall(f"the rate is from {RATES[0]} to {RATES[1]:g} a second; got {shown(rate)}")
        self.rate = rate
        self._begin_traffic()

    def set_speed(self, speed: float) -> None:
        """Change how fast time runs."""
        if not 1 <= speed <= FASTEST:
            raise InvalidCall(f"the speed is from 1 to {FASTEST}; got {shown(speed)}")
        self.speed = speed

    def click(self, count: int = 1) -> None:
        """Send requests by hand, at once."""
        if not 1 <= count <= MOST_AMOUNT:
            raise InvalidCall(f"a burst has 1 to {MOST_AMOUNT} requests; got {shown(count)}")
        self.caption.begin()
        for _ in range(count):
            heapq.heappush(self._asked, (self.now, True))
        if count > 1:
            self._burst = count, [lane.admitted for lane in self.lanes]

    def attack(self) -> None:
        """Send the whole limit just before a window ends, and again just after, after a quiet period."""
        self.caption.begin()
        period, amount = self.limit.period_us, self.limit.amount
        edge = min(SECOND, period // 20)
        seam = -(-(self.now + period + 2 * edge) // period) * period
        for turn in range(2 * amount):
            heapq.heappush(self._asked, (seam - edge + edge * turn // amount, True))
        self._muted_until = seam + edge
        self._hurry(seam - 2 * edge)

    # Time

    def step(self, seconds: float) -> None:
        """Let real time pass."""
        if self.paused:
            return
        speed = max(self.speed, self._hurry_speed if self.now < self._hurry_until else 0)
        self.advance(self.now + int(seconds * SECOND * speed))

    def advance(self, to: int) -> None:
        """Run every request and every bin up to an instant."""
        for _ in range(MOST_A_FRAME + 2 * BINS):
            request = self._next_request()
            self._skip(to if request is None else min(request, to))
            bin_end = self.start + (self._bin + 1) * self._bin_us
            time = bin_end if request is None else min(bin_end, max(request, self.now))
            if time > to:
                break
            self._leave(time)
            self.now = self._clock.us = time
            if time == bin_end:
                self._bin += 1
                for lane in self.lanes:
                    lane.begin_bin(self._bin, time)
            else:
                self._ask(time)
                if len(self._times) >= MOST_A_FRAME:
                    return
        else:
            return
        self._leave(to)
        self.now = self._clock.us = to

    def _skip(self, to: int) -> None:
        """Leave out the bins of a long gap: after the time that is shown, every lane has forgotten its requests."""
        shown_us = BINS * self._bin_us
        if self.now - self._last > 2 * shown_us and to - self.now > 2 * shown_us:
            self._bin = (to - shown_us - self.start) // self._bin_us - 1
            self.now = self.start + (self._bin + 1) * self._bin_us

    def _ask(self, time: int) -> None:
        if self._asked and max(self._asked[0][0], self.now) <= time:
            heapq.heappop(self._asked)
        else:
            self._made = next(self._traffic, None)
        self._requests += 1
        self._last = time
        answers = [lane.request(self._requests, time, self._bin) for lane in self.lanes]
        self._times.append(time)
        self._answers.append(answers)
        self.caption.watch(self.lanes, time)
        if self._burst and not self._asked:
            count, before = self._burst
            self._burst = None
            self.caption.tell_burst(self.lanes, before, count)

    def _leave(self, until: int) -> None:
        for place, lane in enumerate(self.lanes):
            for time in lane.leave(until, self._bin):
                self._left.append((place, time))

    def _next_request(self) -> int | None:
        while self._made is not None and self._made < self._muted_until:
            self._made = next(self._traffic, None)
        times = [each for each in (self._made, self._asked[0][0] if self._asked else None) if each is not None]
        soonest = min(times, default=None)
        if self.traffic == LOG and soonest is not None and soonest - self.now > PERIODS_SHOWN * self.limit.period_us:
            self._hurry(soonest - self.limit.period_us)
        return soonest

    def _hurry(self, until: int) -> None:
        if until > self._hurry_until:
            self._hurry_until = until
            self._hurry_speed = (until - self.now) / SECOND / HURRY

    def _begin_traffic(self) -> None:
        self._traffic = self._made_traffic()
        self._made = next(self._traffic, None)

    def _made_traffic(self) -> Iterator[int]:
        if self.traffic == CLICKS:
            return
        start = self.now
        if self.traffic == LOG:
            for time in self._log:
                yield start + time
            return
        self.seed += 1
        scene = Scene(self.limit.amount, self.limit.period_us, self.rate, seed=self.seed, start_us=start)
        for time, _, _ in TRAFFIC[self.traffic].requests(scene):
            yield time

    # What the page gets

    def head(self) -> dict[str, Any]:
        """Return what stays the same until the world begins anew."""
        return {
            "limit": str(self.limit), "amount": self.limit.amount, "burst": self.limit.burst,
            "period": self.limit.period_us, "bin": self._bin_us, "begun": self._begun,
            "lanes": [{"name": lane.name, "words": lane.words, "knows": lane.knows_windows} for lane in self.lanes],
            "traffic": self.traffic, "rate": self.present_rate, "speed": self.speed, "paused": self.paused,
        }  # fmt: skip

    @property
    def present_rate(self) -> float:
        """Requests a second."""
        return self.rate or self.limit.amount * SECOND / self.limit.period_us

    def frame(self) -> dict[str, Any]:
        """Return what has changed since the last frame. Times count from the start of the world."""
        times, answers, left = self._times, self._answers, self._left
        lanes = [lane.frame(self.now) for lane in self.lanes]
        frame: dict[str, Any] = {"t": self.now - self.start, "caption": self.caption.text, "lanes": lanes}
        if len(times) <= SINGLE:
            frame["q"] = [time - self.start for time in times]
            frame["i"] = self._requests - len(times) + 1
            for place, lane in enumerate(lanes):
                lane["a"] = "".join("1" if each[place] else "0" for each in answers)
        else:
            bins = [(time - self.start) // self._bin_us for time in times]
            for place, lane in enumerate(lanes):
                lane["b"] = _counted(bins, [each[place] for each in answers])
        for place, time in left[:SINGLE]:
            lanes[place].setdefault("d", []).append(time - self.start)
        frame["lines"] = [self._line(*each) for each in zip(times[-LINES:], answers[-LINES:], strict=True)]
        self._begin_frame()
        return frame

    def answer(self, place: int, number: int) -> str:
        """Return the whole answer of a lane to a request, in words."""
        lane = self.lanes[place]
        for answer in lane.answers:
            if answer.number == number:
                return f"at {write_seconds(answer.time - self.start)} s: {lane.told(answer)}"
        raise InvalidCall("this answer is too old to be shown")

    def _line(self, time: int, answers: Sequence[bool]) -> str:
        words = "".join("  yes" if each else "   no" for each in answers)
        return f"{(time - self.start) / SECOND:>10.3f} s{words}"

    def _begin_frame(self) -> None:
        self._times: list[int] = []
        self._answers: list[list[bool]] = []
        self._left: list[tuple[int, int]] = []


def _counted(bins: Sequence[int], answers: Sequence[bool]) -> list[int]:
    """Return bin, yes and no for each bin, one after the other."""
    counts: dict[int, list[int]] = {}
    for number, answer in zip(bins, answers, strict=True):
        counts.setdefault(number, [0, 0])[0 if answer else 1] += 1
    return [value for number, (yes, no) in counts.items() for value in (number, yes, no)]
