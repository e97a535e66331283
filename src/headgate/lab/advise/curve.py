"""Rate against burst: the pairs that would have refused few clients of a log, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from typing import Final

from headgate.clock import MINUTE, SECOND
from headgate.errors import InvalidCall, InvalidLimit
from headgate.lab.advise.advice import policy_of
from headgate.lab.advise.bursts import Client, measure
from headgate.lab.logs import Log, LogFacts, Row
from headgate.lab.numbers import several
from headgate.lab.text import about_log, printed_key, share
from headgate.limit import Limit, write_period
from headgate.wording import columns, shown

LADDER: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Amounts in the protected period."""
SHARES: Final = (Fraction(1, 100), Fraction(1, 200), Fraction(1, 1000))
"""Clients that are refused: 1, 0.5 and 0.1 %."""
SHOWN: Final = 10
TOLD: Final = 4096
"""The number of requests after which the progress is told again."""


@dataclass(frozen=True)
class Rung:
    """One rate."""

    limit: Limit
    """The rate, and the smallest burst that refuses no more clients than may be refused."""
    bursts: tuple[int, ...]
    """The smallest bursts that refuse at most each of the shares of a `BurstCurve`."""

    @property
    def most(self) -> int:
        """The most that one client can pass in the protected period: the burst, and what comes back before its end."""
        return self.limit.amount + self.limit.burst - 1


@dataclass(frozen=True)
class BurstCurve:
    """The bursts that the clients of a log need, for several rates. `str` is the text that `headgate advise` prints."""

    requests: int
    clients: int
    protect_us: int
    refuse_at_most: Fraction
    shares: tuple[Fraction, ...]
    rungs: tuple[Rung, ...]
    best: Rung
    """The rung by which one client can pass the least in the protected period; of equal ones, the lowest rate."""
    refused: tuple[Client, ...]
    """The clients that the best rung would have refused, the one that needs the largest burst first."""
    facts: LogFacts | None = None
    """The facts that the reader of the log found."""
    left_out: tuple[int, ...] = ()
    """Amounts of the ladder that are too slow for the burst that they would need: no bucket can hold it."""
    key: str = "ip"
    """The word for the client in the log: `ip`, `user`, or the name of a field."""
    cost: str | None = None
    """The field of the costs in the log; None where each request costs 1."""

    @property
    def policy(self) -> str:
        """A policy with the best limit, in YAML."""
        return policy_of(str(self.best.limit), key=self.key, cost=self.cost)

    def __str__(self) -> str:
        read = [about_log(self.facts), ""] if self.facts is not None else []
        policy = ["Policy", self.policy.rstrip()]
        return "\n".join([*read, *self._rates(), "", *self._choice(), "", *self._refused(), "", *policy])

    def _rates(self) -> list[str]:
        period = write_period(self.protect_us)
        told = [f"{float(100 - 100 * each):.8g} %" for each in self.shares]
        rows = [("rate", *told, f"most in any {period}   ")]
        for rung in self.rungs:
            bursts = [f"{burst:,}" for burst in rung.bursts]
            rows.append(
                (f"{rung.limit.amount}/{period}", *bursts, f"{rung.most:,} {'<-' if rung is self.best else '  '}")
            )
        counts = f"{several(self.requests, 'request')} of {several(self.clients, 'client')}"
        told = [f"{counts}. The burst with which this share of them is never refused:", *columns(rows)]
        if self.left_out:
            amounts = ", ".join(f"{each}/{period}" for each in self.left_out)
            told.append(f"Left out, because no bucket can hold the burst that they need: {amounts}.")
        return told

    def _choice(self) -> list[str]:
        period = write_period(self.protect_us)
        text = [
            str(self.best.limit),
            f"One client can pass at most {self.best.most:,} in any {period}, the least of these rates. "
            f"{len(self.refused):,} of {self.clients:,} clients",
            f"({100 * len(self.refused) / self.clients:.3g} %) would have been refused at least once.",
        ]
        lowest = self.rungs[0] if not self.left_out else None
        if len(self.rungs) > 1 and self.best in (lowest, self.rungs[-1]):
            end, way = ("lowest", "lower") if self.best is self.rungs[0] else ("highest", "higher")
            text.append(f"That is the {end} rate of the ladder: try {way} ones with --rates.")
        return text

    def _refused(self) -> list[str]:
        if not self.refused:
            return ["No client would have been refused."]
        at, period = self.rungs.index(self.best), write_period(self.protect_us)
        rows = [("refused", "requests", f"most in a {period}", "burst needed", "errors")]
        for client in self.refused[:SHOWN]:
            counts = (f"{client.requests:,}", f"{client.most:,}", f"{client.bursts[at]:,}")
            rows.append((printed_key(client.key), *counts, share(client.errors, client.requests)))
        more = len(self.refused) - SHOWN
        rest = [f"and {more:,} more"] if more > 0 else []
        return [*columns(rows), *rest, "Some of them may be honest: only you can tell."]


def burst_curve(
    requests: Log | Iterable[Row],
    amounts: Sequence[int] = LADDER,
    protect_us: int = MINUTE,
    refuse_at_most: Fraction = SHARES[1],
    progress: Callable[[int], None] | None = None,
) -> BurstCurve:
    """Measure a log at several rates, and choose the best; requests that are no log must be in the order of time.

    `progress` is told the number of requests so far, now and then.
    """
    limits = _ladder(amounts, protect_us, refuse_at_most)
    clients = measure(_rows(requests, progress), limits, protect_us)
    if not clients:
        raise InvalidCall("the log has no requests: there is nothing to learn from it")
    log = requests if isinstance(requests, Log) else None
    shares = tuple(sorted({*SHARES, refuse_at_most}, reverse=True))
    needed = zip(*(client.bursts for client in clients), strict=True)
    tried = [_rung(limit, bursts, shares, refuse_at_most) for limit, bursts in zip(limits, needed, strict=True)]
    rungs = tuple(rung for rung in tried if rung is not None)
    if not rungs:
        raise InvalidCall("no bucket can hold the bursts that these rates need: try higher rates, with --rates")
    clients = [each._replace(bursts=tuple(_of_rungs(each.bursts, tried))) for each in clients]
    best = min(rungs, key=lambda rung: rung.most)
    at = rungs.index(best)
    refused = (each for each in clients if each.bursts[at] > best.limit.burst)
    return BurstCurve(
        requests=sum(each.requests for each in clients),
        clients=len(clients),
        protect_us=protect_us,
        refuse_at_most=refuse_at_most,
        shares=shares,
        rungs=rungs,
        best=best,
        refused=tuple(sorted(refused, key=lambda each: (-each.bursts[at], each.key))),
        facts=None if log is None else log.facts,
        key="ip" if log is None else log.key,
        cost=None if log is None else log.cost,
        left_out=tuple(limit.amount for limit, rung in zip(limits, tried, strict=True) if rung is None),
    )


def _ladder(amounts: Sequence[int], protect_us: int, refuse_at_most: Fraction) -> list[Limit]:
    """Return the rates to measure, the lowest first."""
    if not 0 <= refuse_at_most < 1:
        raise InvalidCall(f"refuse_at_most is a share from 0 to below 1; got {shown(refuse_at_most)}")
    if not amounts:
        raise InvalidCall("a ladder has at least one rate")
    return [Limit(amount, per=protect_us / SECOND) for amount in sorted(set(amounts))]


def _rows(requests: Log | Iterable[Row], progress: Callable[[int], None] | None) -> Iterable[Row]:
    rows = chain.from_iterable(requests.batches()) if isinstance(requests, Log) else requests
    return rows if progress is None else _told(rows, progress)


def _told(rows: Iterable[Row], progress: Callable[[int], None]) -> Iterator[Row]:
    seen, each = 0, iter(rows)
    while batch := list(islice(each, TOLD)):
        yield from batch
        seen += len(batch)
        progress(seen)


def _rung(limit: Limit, needed: Sequence[int], shares: Sequence[Fraction], refuse_at_most: Fraction) -> Rung | None:
    ordered = sorted(needed, reverse=True)
    bursts = {each: ordered[int(len(ordered) * each)] for each in shares}
    try:
        return Rung(limit.replace(burst=max(1, bursts[refuse_at_most])), tuple(bursts.values()))
    except InvalidLimit:  # a large burst takes years to come back at a low rate
        return None


def _of_rungs(bursts: Sequence[int], tried: Sequence[Rung | None]) -> Iterator[int]:
    return (burst for burst, rung in zip(bursts, tried, strict=True) if rung is not None)
