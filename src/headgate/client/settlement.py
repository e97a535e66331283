"""The real usage of a call: reserved units are settled when the answer tells how many were used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.client.call_queue import ChargedCall, Fitted
from headgate.client.key_state import KeyState
from headgate.client.outgoing import Outgoing
from headgate.client.pacing import counts_tokens
from headgate.client.report import Tally
from headgate.client.server_limits import ServerResponse
from headgate.client.sides import Side
from headgate.client.usage import UsageReader, UsageRequest
from headgate.clock import SECOND
from headgate.steps import Steps


class Settlement:
    """The turn of one attempt, and its real use."""

    __slots__ = ("_side", "_state", "_tally", "_turn", "_usage")

    def __init__(self, turn: ChargedCall, usage: UsageRequest, state: KeyState, tally: Tally, side: Side) -> None:
        self._turn, self._usage, self._state, self._tally, self._side = turn, usage, state, tally, side

    def watch(self, request: Outgoing, response: Any, answer: ServerResponse) -> Steps[Any]:  # noqa: ANN401
        """Return the response; its body tells the usage while the caller reads it."""
        if not 200 <= answer.status < 300:
            yield from self.failed(answer)
            return response
        headers, read = request.head(response)[1], request.read_already(response)
        encoding = headers.get("content-encoding", "") if read is None and not request.decompressed else ""
        reader = self._usage.reader(headers.get("content-type", ""), encoding)
        if read is not None:
            reader.feed(read)
            yield self._end(reader)
            return response
        return request.watch(response, reader.feed, lambda: self._end(reader))

    def failed(self, answer: ServerResponse) -> Steps[None]:
        """Give back the tokens of an attempt that the server did not work on; the request itself stays counted.

        If a limit refused it, the server has counted more tokens than the budget has, and the tokens stay charged: that
        brings the budget back below the limit, in steps of one call.
        """
        if not answer.refused:
            yield from self._settle(dict.fromkeys(filter(counts_tokens, charged_in(self._turn.reservation)), 0))

    def _end(self, reader: UsageReader) -> Any:  # noqa: ANN401
        """Settle by what was used; a body that was cut short keeps its reservation."""
        used = reader.close()
        if used is not None:
            self._tally.use(used)
        return self._side.run(self._settle(used or {}))

    def _settle(self, used: Mapping[str, int]) -> Steps[None]:
        """Settle units by their names; units that are not named were used as they were reserved.

        Where calls wait, the store could give nothing back: the units pay for the next calls of this process.
        """
        charged, paid = charged_in(self._turn.reservation), self._turn.paid
        real = {name: max(0, used[name] - paid.get(name, 0)) for name in charged if name in used}
        unused = {name: charged[name] - cost for name, cost in real.items() if cost < charged[name]}
        for name in unused:  # also the credit that this call did not need
            unused[name] += max(0, paid.get(name, 0) - used[name])
        if len(self._state.line):
            self._state.credit.keep(unused, self._side.clock.now_us())
            real.update((name, charged[name]) for name in unused)
        yield self._turn.reservation.settle({**charged, **real})
        if self._turn.fitted is not None:
            yield from self._settle_windows(self._turn.fitted, used)

    def _settle_windows(self, fitted: Fitted, used: Mapping[str, int]) -> Steps[None]:
        """Leave in the windows what was used: unused units leave the slot that was charged, others are charged now."""
        charged = charged_in(fitted.reservation)
        took = (self._side.clock.now_us() - fitted.since_us) / SECOND
        for name in charged.keys() & used.keys():
            if used[name]:
                expected = fitted.expected.get(name, 1)
                self._state.spreads.of(name).add(used[name], expected, charged[name], took)
        yield fitted.reservation.settle({name: min(cost, used.get(name, cost)) for name, cost in charged.items()})
        more = {name: max(0, used.get(name, cost) - cost) for name, cost in charged.items()}
        if any(more.values()):
            yield self._side.owe(fitted.windows, self._state.key, more)


def charged_in(reservation: Any) -> Mapping[str, int]:  # noqa: ANN401 - of either limiter
    """Return what a reservation was charged, by the names of limits."""
    return {call.limit.name: call.cost for call in reservation.decision.calls if not call.limit.guards}
