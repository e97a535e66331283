"""`Log`: the requests of one log, from one file or several, in the order of their times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import BinaryIO

from headgate.errors import InvalidCall
from headgate.lab.logs.facts import LogFacts
from headgate.lab.logs.fields import OPTIONAL, choose
from headgate.lab.logs.order import REACH, Order
from headgate.lab.logs.reading import LogFile, Tally
from headgate.lab.logs.request import Request, Row
from headgate.lab.logs.sources import Source
from headgate.wording import shown, suggestion

STAMPS = ("spread", "as-is")
ROLES = ("key", "user", "method", "path", "status")


class Log:
    """The requests of a log, sorted by time. It is read once, by `batches` or by iteration, and `facts` tells the rest.

    Several files are one log, whatever their order, and whether one follows the other or they are of the same time. The
    first lines of every file are read at once, and raise `InvalidCall` if no format is known for them.
    """

    def __init__(
        self,
        files: Sequence[str | Path | BinaryIO],
        *,
        key: str = "ip",
        cost: str | None = None,
        fields: Mapping[str, str] | None = None,
        stamps: str = "spread",
        wanted: Collection[str] = OPTIONAL,
    ) -> None:
        if isinstance(files, str | Path) or not files:
            raise InvalidCall("files must be a list of one or more paths or open files: Log(['access.log'])")
        if stamps not in STAMPS:
            raise InvalidCall(f"{shown(stamps)} is no way to read stamps; {suggestion(str(stamps), STAMPS)}")
        self.key = key
        """The word for the client: `ip`, `user`, or the name of a field."""
        chosen = choose(key, cost, fields, wanted)
        self.cost = chosen.cost or None
        """The field of the costs; None where each request costs 1."""
        self._tally = Tally()
        self._all = [LogFile(Source(file), self._tally) for file in files]
        self._files = [file for file in self._all if file.open(chosen)]
        if not self._files:
            raise InvalidCall(f"{self._all[0].facts.name} is empty: there is no line to read")
        self._spread = stamps == "spread" and all(file.whole_seconds for file in self._files)
        self._order = Order(self._spread)
        self._begun = False

    def __iter__(self) -> Iterator[Request]:
        for batch in self.batches():
            yield from map(Request._make, batch)

    def batches(self) -> Iterator[list[Row]]:
        """Yield the requests as plain tuples, many at once: the fastest way to read a log."""
        if self._begun:
            raise InvalidCall("a log is read once: make another Log to read it again")
        self._begun = True
        # The file that is behind is read next, so that files of the same time advance together.
        waiting = [(file.newest, place, file, file.pieces()) for place, file in enumerate(self._files)]
        heapify(waiting)
        while waiting:
            _, place, file, pieces = waiting[0]
            rows = next(pieces, None)
            if rows is None:
                heappop(waiting)
            else:
                file.newest = self._order.add(rows, file.newest)
                heapreplace(waiting, (file.newest, place, file, pieces))
            if waiting:
                yield from self._order.ready(waiting[0][0] - REACH)
        yield from self._order.ready(None)

    @property
    def facts(self) -> LogFacts:
        """The facts that are known so far."""
        order, tally = self._order, self._tally
        lacks = frozenset[str]().union(*(file.format.lacks for file in self._files))
        return LogFacts(
            inputs=tuple(file.facts for file in self._all),
            lines=tally.lines,
            requests=order.requests,
            unreadable=tally.unreadable,
            bad_lines=tuple(tally.bad_lines),
            late=order.late,
            out_of_order=tally.out_of_order,
            spread=self._spread,
            first=order.first,
            last=order.last,
            missing=tuple(role for role in ROLES if role in lacks),
        )
