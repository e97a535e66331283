"""`ShedPermit`: the right of one request to be served, or the refusal of it."""

from __future__ import annotations

from sys import float_info
from types import TracebackType
from typing import TYPE_CHECKING

from headgate.clock import SECOND, steady_ns
from headgate.engine import EntryPermit
from headgate.errors import InvalidCall, Overloaded
from headgate.permit import OUTCOMES, Outcome, checked_outcome
from headgate.shed.context import deadline_ns
from headgate.shed.loop_delay import in_event_loop
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.shed.refusals import Reason
    from headgate.shed.shedder import LoadShedder

BLOCKS = "`with` and a timeout would stop this event loop: write `async with shedder.permit(...):`"
LARGEST = float_info.max
ENDED = "this permit has ended, and a permit cannot be used twice: take another with shedder.permit(...)"


class ShedPermit(EntryPermit):
    """True if the request may be served. A block ends the permit; so does `release`, whichever comes first.

    A block that raises `TimeoutError` ends the permit as dropped, one that raises another error as ignored.
    `LoadShedder.permit` makes permits. Most never change the defaults below, so there is no constructor for them.
    """

    reason: Reason | None = None
    """Why the request was refused; None for a permit that was granted."""
    retry_after = 0
    """Seconds after which the caller of a refused request may come back."""

    tenant = ""
    weight = 1.0
    due: int | None = None
    """The instant until which the request waits."""
    examined = False
    """Whether the reasons to refuse it were looked at: chance decides by some of them, so they are not asked twice."""
    loop_delay = 0
    """Microseconds that the request sat in its event loop..."""
    late = False
    """...and whether that was too long."""
    _outer_deadline: tuple[int | None] | None = None
    """The deadline of the code around the block, once the permit has shown its own."""

    @property
    def shedder(self) -> LoadShedder:
        """The load shedder that was asked."""
        shedder: LoadShedder = self.entry.shedder
        return shedder

    @property
    def request_class(self) -> str:
        """The class of the request."""
        return self.entry.name

    @property
    def rank(self) -> int:
        """The rank of the class: 0 for the most important."""
        return self.entry.rank

    def describe(self, tenant: str, weight: float, timeout: float | None, deadline: float | None) -> None:
        """Set what matters to a request that may wait."""
        self.tenant, self.weight = tenant, weight
        if timeout is not None:
            self.due = self.began + _microseconds(timeout, "timeout")
        if deadline is not None:
            self.deadline = self.began + _microseconds(deadline, "deadline")

    def answered(self, outcome: Outcome = "success") -> None:
        """Note that the response begins: the latency counts to here, and the permit is held until `release`."""
        if outcome not in OUTCOMES:
            checked_outcome(outcome)
        if self.mark is not None and self.state == "held":
            self.shedder.sample(self, outcome)

    def wait(self) -> None:
        """Wait until the permit is granted; raise if it is refused, or cannot be used."""
        if self.state == "asked":
            if in_event_loop():  # the loop would stand still, and with it the requests that hold the permits
                raise InvalidCall(BLOCKS)
            self.shedder.wait(self)
        if self.state == "refused":
            raise Overloaded(self.request_class, self.reason or "limit", self.retry_after)
        if self.state == "ended":
            raise InvalidCall(ENDED)

    async def __aenter__(self) -> ShedPermit:
        if self.state == "asked":
            await self.shedder.wait_async(self)
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def show_deadline(self) -> None:
        """Show the deadline to the code that runs from here on."""
        if self.deadline is not None:
            if self._outer_deadline is None:
                self._outer_deadline = (deadline_ns.get(),)
            deadline_ns.set(steady_ns() + (self.deadline - self.shedder.now()) * 1_000)

    def hide_deadline(self) -> None:
        """Hide the deadline again."""
        if self._outer_deadline is not None:
            deadline_ns.set(self._outer_deadline[0])

    def __repr__(self) -> str:
        state = f"refused: {self.reason}" if self.state == "refused" else self.outcome or self.state
        return f"<ShedPermit {self.request_class}, {state}>"


def check_tenant(tenant: object, weight: object) -> None:
    """Raise if a tenant has no name, or no weight."""
    if not isinstance(tenant, str):
        raise InvalidCall(f"the name of a tenant is a text; got {shown(tenant)}")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= LARGEST:
        raise InvalidCall(f"the weight of a tenant is a number above 0; got {shown(weight)}")


def _microseconds(seconds: float, name: str) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidCall(f"a {name} is a number of seconds from 0; got {shown(seconds)}")
    return round(min(seconds, 1e9) * SECOND)
