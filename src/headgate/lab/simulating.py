"""Made traffic through limits: the same report as for a log."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.errors import InvalidCall
from headgate.lab.comparison import Comparison, compared
from headgate.lab.logs import Request
from headgate.lab.replaying import Progress, replay
from headgate.lab.traffic import TRAFFIC, Scene
from headgate.limit import Limit, parse_period
from headgate.wording import shown, suggestion

DEFAULT_LENGTH = "10m"


def simulate(
    traffic: str,
    *limits: Limit | str,
    length: str = DEFAULT_LENGTH,
    clients: int = 1,
    rate: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Send made traffic through several limits, or through one by every algorithm; the same for the same seed.

    The traffic is made for the first limit: without a `rate`, in requests a second over all clients, each client asks
    for exactly its limit.
    """
    kind = TRAFFIC.get(traffic)
    if kind is None:
        raise InvalidCall(f"unknown traffic {shown(traffic)}: {suggestion(traffic, TRAFFIC)}")
    first = compared(limits)[0][0].limit
    scene = Scene(first.amount, first.period_us, rate, clients, seed, parse_period(length))
    return replay(_requests(kind.requests(scene)), *limits, progress=progress)


def _requests(made: Iterator[tuple[int, str, int]]) -> Iterator[Request]:
    for time, key, cost in made:
        yield Request(time, key, cost, "", "", 0)
