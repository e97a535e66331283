"""What a call really took: units that were reserved are settled when its answer tells its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.client.key_state import KeyState
from headgate.client.outgoing import Outgoing
from headgate.client.pacing import counts_tokens
from headgate.client.report import Tally
from headgate.client.told import Answer
from headgate.client.turn import Turn
from headgate.client.usage import UsageReader, UsageRequest
from headgate.clock import Clock
from headgate.steps import Steps


class Settlement:
    """The turn of one attempt, and its real use."""

    __slots__ = ("_clock", "_state", "_tally", "_turn", "_usage")

    def __init__(self, turn: Turn, usage: UsageRequest, state: KeyState, tally: Tally, clock: Clock) -> None:
        self._turn, self._usage, self._state, self._tally, self._clock = turn, usage, state, tally, clock

    def watch(self, request: Outgoing, response: Any, answer: Answer) -> Steps[Any]:  # noqa: ANN401
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

    def failed(self, answer: Answer) -> Steps[None]:
        """Give back the tokens of an attempt that the server did not work on; the request itself stays counted.

        If a limit refused it, the server has counted more tokens than the budget has, and the tokens stay charged: that
        brings the budget back below the limit, in steps of one call.
        """
        if not answer.refused:
            yield self._settle(dict.fromkeys(filter(counts_tokens, self._charged()), 0))

    def _end(self, reader: UsageReader) -> Any:  # noqa: ANN401
        """Settle by what was used; a body that was cut short keeps its reservation."""
        used = reader.close()
        if used is not None:
            self._tally.use(used)
        return self._settle(used or {})

    def _settle(self, used: Mapping[str, int]) -> Any:  # noqa: ANN401
        """Settle units by their names; units that are not named were used as they were reserved.

        Where calls wait, the store could give nothing back: the units pay for the next calls of this process.
        """
        charged, paid = self._charged(), self._turn.paid
        real = {name: max(0, used[name] - paid.get(name, 0)) for name in charged if name in used}
        unused = {name: charged[name] - cost for name, cost in real.items() if cost < charged[name]}
        for name in unused:  # also the credit that this call did not need
            unused[name] += max(0, paid.get(name, 0) - used[name])
        if len(self._state.line):
            self._state.credit.keep(unused, self._clock.now_us())
            real.update((name, charged[name]) for name in unused)
        return self._turn.reservation.settle({**charged, **real})

    def _charged(self) -> Mapping[str, int]:
        calls = self._turn.reservation.decision.calls
        return {call.limit.name: call.cost for call in calls if not call.limit.guards}
