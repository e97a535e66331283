"""One pass over the requests: every limit answers each, and every answer is compared with an exact window.

Most clients never come near a limit. Their requests are only remembered, and are asked in the engine once the units of
a visit are more than the smallest limit: see `Client`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from headgate.clock import HandClock
from headgate.errors import InvalidCall
from headgate.lab.comparison.bins import Bins
from headgate.lab.comparison.clients import Client, Parts, Past
from headgate.lab.comparison.lanes import Lane, QueueLane, lane_for
from headgate.lab.comparison.limits import Candidate
from headgate.lab.comparison.results import Comparison
from headgate.lab.logs import LogFacts, Row
from headgate.lab.text import ERRORS
from headgate.limit import Limit

SHOWN_CLIENTS: Final = 10


class Question:
    """An amount per period, and the lanes of the limits that enforce it: they are compared with the same windows."""

    def __init__(self, amount: int, period: int, clock: HandClock) -> None:
        self.amount = amount
        self.period = period
        self._clock = clock
        self.least_most = 0
        """The least `most` of the lanes, or less."""
        self.lanes: list[tuple[int, Lane]] = []
        """The lanes, with their places in the comparison."""

    def ask(self, past: Past, client: Client, time: int, cost: int, bins: Bins) -> None:
        """Ask every limit about a request, and compare the answers with exact windows."""
        self._clock.us = time
        allowed = [lane.hit(client.key, cost).allowed for _, lane in self.lanes]
        if past.parts is None:
            fits = past.shared.at(time) + cost <= self.amount
            if fits and all(allowed):
                units = past.shared.add(time, cost)
                if units > self.least_most:
                    self.note_most(units)
                return
            past.parts = Parts(past.shared, len(self.lanes))
            self._begin_estimates(client.key, past.shared.two_periods, time)
        self._compare(past.parts, allowed, client, time, cost, bins)

    def note_most(self, units: int) -> None:
        """Note what one client has passed in a period, by every limit."""
        for _, lane in self.lanes:
            lane.most = max(lane.most, units)
        self.least_most = min(lane.most for _, lane in self.lanes)

    def _begin_estimates(self, key: str, uses: Iterable[tuple[int, int]], now: int) -> None:
        """Count requests that were not estimated when they came, because every limit has counted them itself."""
        estimates = [lane.offered for _, lane in self.lanes if lane.offered is not None]
        if estimates:
            for time, cost in uses:
                self._clock.us = time
                for estimate in estimates:
                    estimate.count(key, cost)
            self._clock.us = now

    def _compare(self, past: Parts, allowed: Sequence[bool], client: Client, time: int, cost: int, bins: Bins) -> None:
        amount = self.amount
        offered_fits = past.offered.at(time) + cost <= amount
        past.offered.add(time, cost)
        exact_fits = past.exact.at(time) + cost <= amount
        if exact_fits:
            past.exact.add(time, cost)
        for (place, lane), passed, passes in zip(self.lanes, past.passed, allowed, strict=True):
            same_fits = passed.at(time) + cost <= amount
            if passes:
                units = passed.add(time, cost)
                if units > lane.most:
                    lane.most = units
                if not same_fits:
                    lane.same_passed += 1
                    above = bins.above[place]
                    above[-1] = max(above[-1], units - amount)
                if not exact_fits:
                    lane.own_passed += 1
            else:
                _refuse(lane, place, client, time, bins)
                lane.same_refused += same_fits
                lane.own_refused += exact_fits
            if lane.offered is not None:
                lane.offered.compare(client.key, cost, amount, offered_fits)


class Measurement:
    """The limits of a comparison, and the clients seen so far."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        limits = [each.limit for each in candidates]
        self._clock = HandClock()
        self._lanes = [lane_for(each, self._clock) for each in candidates]
        self._questions = _questions(self._lanes, self._clock)
        self._queues = [(place, lane) for place, lane in enumerate(self._lanes) if isinstance(lane, QueueLane)]
        self._bins = Bins(len(limits))
        self._clients: dict[str, Client] = {}
        self._requests = 0
        self._first = self._now = 0
        self._fitting = min(min(limit.amount, limit.burst) for limit in limits)
        """Units of a visit that no limit refuses."""
        self._fitting_still = self._fitting * 3 // 4
        """Units with which a visit goes on unasked: with more of them, old requests would be looked for too often."""
        self._idle = max(map(_forgets_after, limits))

    def take(self, requests: Iterable[Row]) -> None:
        """Take the next requests, in the order of their times."""
        bins, clients, fitting, idle, now = self._bins, self._clients, self._fitting, self._idle, self._now
        end, queues, seen = bins.end, self._queues, 0
        for request in requests:
            time, key, cost, _, _, status = request
            if time >= end:
                self._count(seen)
                seen = 0
                if not bins.offered:
                    self._first = time
                bins.reach(time)
                end = bins.end
            seen += 1
            client = clients.get(key)
            if client is None:
                client = clients[key] = Client(key, time)
            client.requests += 1
            if status >= ERRORS:
                client.errors += 1
            if time < now:
                raise InvalidCall(f"requests must be in the order of their times; {time} comes after {now}")
            now = time
            if time - client.last >= idle:
                self._end_visit(client)
            client.last = time
            client.units += cost
            if client.units <= fitting:
                client.visit.append(request)
            elif cost:
                if client.pasts is None and self._fits_still(client, time):
                    client.visit.append(request)
                else:
                    self._ask(client, time, cost)
            if queues:
                self._queue(client, time, cost)
        self._count(seen)
        self._now = now

    def result(self, log: LogFacts | None, remarks: tuple[str, ...]) -> Comparison:
        """Return the results so far."""
        clients = self._clients.values()
        for client in clients:
            self._note_most(client)
        refused = sorted((each for each in clients if each.refused), key=lambda each: (-each.refused, each.key))
        return Comparison(
            limits=tuple(lane.measured(self._clients) for lane in self._lanes),
            requests=self._requests,
            clients=len(clients),
            first=self._first,
            last=self._now,
            refused_most=tuple(client.result() for client in refused[:SHOWN_CLIENTS]),
            series=self._bins.series(),
            log=log,
            remarks=remarks,
        )

    def _count(self, seen: int) -> None:
        if seen:
            self._requests += seen
            self._bins.offered[-1] += seen

    def _ask(self, client: Client, time: int, cost: int) -> None:
        """Ask every limit; the first time in a visit, first about the requests of the visit so far."""
        if client.pasts is None:
            client.pasts = [Past(each.period) for each in self._questions]
            for earlier, _, units, *_ in client.visit:
                if units:
                    self._ask(client, earlier, units)
            client.visit = []
        for question, past in zip(self._questions, client.pasts, strict=True):
            question.ask(past, client, time, cost, self._bins)

    def _fits_still(self, client: Client, time: int) -> bool:
        """Forget the requests of a visit that every limit has forgotten; return whether the visit fits in every limit.

        A client that is never idle for long, and slow, is never asked about: what it used before `idle` has left every
        window, and every bucket was empty since, because a bucket drains twice what fits in that time.
        """
        self._note_most(client)
        old = bisect_right(client.visit, time - self._idle, key=itemgetter(0))
        units = client.units - sum([row[2] for row in client.visit[:old]])
        if units > self._fitting_still:
            return False  # from now on it is asked: the units of its visit are above those that fit
        del client.visit[:old]
        client.units = units
        return True

    def _queue(self, client: Client, time: int, cost: int) -> None:
        self._clock.us = time
        for place, lane in self._queues:
            if not lane.admits(time, client.key, cost):
                _refuse(lane, place, client, time, self._bins)

    def _end_visit(self, client: Client) -> None:
        self._note_most(client)
        client.units, client.visit, client.pasts = 0, [], None

    def _note_most(self, client: Client) -> None:
        """Note the most that a client has passed in a period, if no limit was asked during its visit."""
        if client.pasts is not None:
            return
        for question in self._questions:
            if client.units > question.least_most:
                question.note_most(_most_in(question.period, client.visit))


def _questions(lanes: Sequence[Lane | QueueLane], clock: HandClock) -> list[Question]:
    questions: dict[tuple[int, int], Question] = {}
    for place, lane in enumerate(lanes):
        if isinstance(lane, Lane):
            amount, period = lane.limit.amount, lane.limit.period_us
            questions.setdefault((amount, period), Question(amount, period, clock)).lanes.append((place, lane))
    return list(questions.values())


def _forgets_after(limit: Limit) -> int:
    """Return how long a client must be idle until the limit answers as if it had never been there, or more."""
    drained = -(-limit.period_us * limit.burst // limit.amount)
    return 2 * max(limit.period_us, drained) + limit.block_us


def _most_in(period: int, visit: Sequence[Row]) -> int:
    """Return the most units in a period, as `Trailing` counts them; without a call for each request."""
    first = units = most = 0
    for time, _, cost, _, _, _ in visit:
        over = time - period
        while visit[first][0] <= over:
            units -= visit[first][2]
            first += 1
        units += cost
        if units > most:
            most = units
    return most


def _refuse(lane: Lane | QueueLane, place: int, client: Client, time: int, bins: Bins) -> None:
    """Count a refusal."""
    bins.refused[place][-1] += 1
    if not client.refused_by >> place & 1:
        client.refused_by |= 1 << place
        lane.clients += 1
    lane.refused += 1
    if place == 0:
        client.refuse(time)
