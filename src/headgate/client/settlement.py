"""What a call really took: units that were reserved are settled when its answer tells its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.client.outgoing import Outgoing
from headgate.client.pacing import counts_tokens
from headgate.client.report import Tally
from headgate.client.usage import UsageReader, UsageRequest
from headgate.steps import Steps


class Settlement:
    """The reservation of one attempt, and its real use."""

    __slots__ = ("_tally", "_reservation", "_usage")

    def __init__(self, reservation: Any, usage: UsageRequest | None, tally: Tally) -> None:  # noqa: ANN401
        self._reservation, self._usage, self._tally = reservation, usage, tally

    def watch(self, request: Outgoing, response: Any, status: int) -> Steps[Any]:  # noqa: ANN401
        """Return the response; its body tells the usage while the caller reads it."""
        if self._usage is None:
            return response
        if not 200 <= status < 300:
            yield from self.nothing_used()
            return response
        headers = request.head(response)[1]
        reader = self._usage.reader(headers.get("content-type", ""), headers.get("content-encoding", ""))
        return request.watch(response, reader.feed, lambda whole: self._end(reader, whole))

    def nothing_used(self) -> Steps[None]:
        """Give back the tokens of an attempt that the server did not work on; the request itself stays counted."""
        weighed = [call.limit.name for call in self._reservation.decision.calls if counts_tokens(call.limit.name)]
        if weighed:
            yield self._reservation.settle(dict.fromkeys(weighed, 0))

    def _end(self, reader: UsageReader, whole: bool) -> Any:  # noqa: ANN401 - awaitable in an event loop
        """Settle by what was used; a body that was cut short keeps its reservation."""
        used = reader.close() if whole else None
        if used is not None:
            self._tally.use(used)
        reserved = self._reserved()
        return self._reservation.settle({name: (used or reserved).get(name, cost) for name, cost in reserved.items()})

    def _reserved(self) -> Mapping[str, int]:
        return {call.limit.name: call.cost for call in self._reservation.decision.calls if not call.limit.guards}
