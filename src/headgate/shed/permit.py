"""`ShedPermit`: the right of one request to be served, or the refusal of it."""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from headgate.clock import SECOND, steady_ns
from headgate.errors import InvalidCall, Overloaded
from headgate.permit import OUTCOMES, Outcome, checked_outcome
from headgate.shed import context
from headgate.shed.loop_delay import in_event_loop
from headgate.wording import shown

if TYPE_CHECKING:
    from headgate.shed.refusals import Reason
    from headgate.shed.shedder import LoadShedder

WAITS = "this permit has a timeout, and waits where it is entered: write `with shedder.permit(...):`, or `async with`"
BLOCKS = "`with` and a timeout would stop this event loop: write `async with shedder.permit(...):`"
ENDED = "this permit has ended, and a permit cannot be used twice: take another with shedder.permit(...)"


class ShedPermit:
    """True if the request may be served. A block ends the permit; so does `release`, whichever comes first.

    A block that raises `TimeoutError` ends the permit as dropped, one that raises another error as ignored.
    `LoadShedder.permit` makes permits. Most never change the defaults below, so they have no constructor: a permit of
    an idle service costs as little as a semaphore.
    """

    outcome: Outcome | None = None
    """How the permit ended; None while it is held, and for a refused permit."""
    reason: Reason | None = None
    """Why the request was refused; None for a permit that was granted."""
    retry_after = 0
    """Seconds after which the caller of a refused request may come back."""

    shedder: LoadShedder
    rank: int
    state: Literal["asked", "held", "refused", "ended"] = "asked"
    began: int
    """The instant at which the permit was granted."""
    mark: int | None = None
    """The mark of the estimator, until it has its sample."""
    tenant = ""
    weight = 1.0
    due: int | None = None
    """The instant until which the request waits."""
    deadline: int | None = None
    """The instant from which on the answer is worth nothing."""
    examined = False
    """Whether the reasons to refuse it were looked at: chance decides by some of them, so they are not asked twice."""
    loop_delay = 0
    """Microseconds that the request sat in its event loop..."""
    late = False
    """...and whether that was too long."""
    _place: tuple[str | None, int | None] | None = None
    """Class and deadline of the code around the block."""

    @property
    def request_class(self) -> str:
        """The class of the request."""
        return self.shedder.classes.order[self.rank]

    def describe(self, tenant: str, weight: float, timeout: float | None, deadline: float | None) -> None:
        """Set what matters to a request that may wait."""
        self.tenant, self.weight = tenant, weight
        if timeout is not None:
            self.due = self.began + _microseconds(timeout, "timeout")
        if deadline is not None:
            self.deadline = self.began + _microseconds(deadline, "deadline")

    def __bool__(self) -> bool:
        if self.state == "asked":
            raise InvalidCall(WAITS)
        return self.state != "refused"

    def answered(self, outcome: Outcome = "success") -> None:
        """Note that the response begins: the latency counts to here, and the permit is held until `release`."""
        if outcome not in OUTCOMES:
            checked_outcome(outcome)
        if self.mark is not None and self.state == "held":
            self.shedder.sample(self, outcome)

    def release(self, outcome: Outcome = "success") -> bool:
        """Release the permit with this outcome. True if this call released it, False if it had ended already."""
        if outcome not in OUTCOMES:
            checked_outcome(outcome)
        if self.state == "held":
            return self.shedder.end(self, outcome)
        if self.state == "asked":
            raise InvalidCall(WAITS)
        return False

    def __enter__(self) -> ShedPermit:
        if self.state == "asked":
            if in_event_loop():  # the loop would stand still, and with it the requests that hold the permits
                raise InvalidCall(BLOCKS)
            self.shedder.wait(self)
        return self._entered()

    async def __aenter__(self) -> ShedPermit:
        if self.state == "asked":
            await self.shedder.wait_async(self)
        return self._entered()

    def _entered(self) -> ShedPermit:
        if self.state == "refused":
            raise Overloaded(self.request_class, self.reason or "limit", self.retry_after)
        if self.state == "ended":
            raise InvalidCall(ENDED)
        self.show()
        return self

    def show(self) -> None:
        """Show class and deadline to the code that runs from here on, perhaps in a second context."""
        if self._place is None:
            self._place = context.request_class.get(), context.deadline_ns.get()
        context.request_class.set(self.shedder.classes.order[self.rank])
        if self.deadline is not None:
            left = self.deadline - self.shedder.now()
            context.deadline_ns.set(steady_ns() + left * 1_000)

    def hide(self) -> None:
        """Hide class and deadline again, in the context of the caller."""
        if self._place is not None:  # not by a token: a request may end in another context than it began in
            context.request_class.set(self._place[0])
            if self.deadline is not None:
                context.deadline_ns.set(self._place[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        self.shedder.end(self, "success" if kind is None else outcome_of(kind))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __del__(self) -> None:
        if self.state == "held":
            self.shedder.abandoned.append(self.mark)

    def __repr__(self) -> str:
        state = f"refused: {self.reason}" if self.state == "refused" else self.outcome or self.state
        return f"<ShedPermit {self.request_class}, {state}>"


def outcome_of(kind: type[BaseException]) -> Outcome:
    """Return how a block ended that raised this. Quick failures must not look like speed."""
    return "dropped" if issubclass(kind, TimeoutError) else "ignored"


def check_tenant(tenant: object, weight: object) -> None:
    """Raise if a tenant has no name, or no weight."""
    if not isinstance(tenant, str):
        raise InvalidCall(f"the name of a tenant is a text; got {shown(tenant)}")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < inf:
        raise InvalidCall(f"the weight of a tenant is a number above 0; got {shown(weight)}")


def _microseconds(seconds: float, name: str) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidCall(f"a {name} is a number of seconds from 0; got {shown(seconds)}")
    return round(min(seconds, 1e9) * SECOND)
