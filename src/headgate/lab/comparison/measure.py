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
from headgate.lab.comparison.clients import Ask, Client, Past
from headgate.lab.comparison.limits import Candidate
from headgate.lab.comparison.questions import questions
from headgate.lab.comparison.results import Comparison
from headgate.lab.comparison.trials import QueueTrial, trial_of
from headgate.lab.logs import LogFacts, Row
from headgate.lab.text import ERRORS
from headgate.limit import Limit

SHOWN_CLIENTS: Final = 10


class Measurement:
    """The limits of a comparison, and the clients seen so far."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        limits = [each.limit for each in candidates]
        self._clock = HandClock()
        self._trials = [trial_of(each, self._clock) for each in candidates]
        self._questions = questions(self._trials, self._clock)
        self._queues = [(place, trial) for place, trial in enumerate(self._trials) if isinstance(trial, QueueTrial)]
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
                for ask, past in self._near(client, request) if client.pasts is None else client.pasts:
                    ask(past, client, time, cost, bins)
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
            limits=tuple(trial.measured(self._clients) for trial in self._trials),
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
        for question in self._questions:
            question.count()
        if seen:
            self._requests += seen
            self._bins.offered[-1] += seen
            for refused, trial in zip(self._bins.refused, self._trials, strict=True):
                refused[-1] += trial.refused - trial.refused_before
                trial.refused_before = trial.refused

    def _near(self, client: Client, request: Row) -> Sequence[tuple[Ask, Past]]:
        """Return what to ask about a request of a visit that may not fit any more: nothing, if it still does.

        Otherwise every limit is asked from now on, and first about the requests of the visit so far.
        """
        if self._fits_still(client, request[0]):
            client.visit.append(request)
            return ()
        client.pasts = [(each.ask, Past(each.period)) for each in self._questions]
        for time, _, cost, *_ in client.visit:
            if cost:
                for ask, past in client.pasts:
                    ask(past, client, time, cost, self._bins)
        client.visit = []
        return client.pasts

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
        for place, trial in self._queues:
            if not trial.admits(time, client.key, cost):
                trial.refused += 1
                trial.clients += bool(client.refuse(1 << place, time))

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
