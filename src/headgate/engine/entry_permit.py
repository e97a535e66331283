"""The part of a load shedder's permit that every request runs: a permit of an idle service costs less than a semaphore.

A request that waits, is refused or has a deadline needs more, which is in the subclass of the shedder.

Like `entry.py`, this file is built twice: the native engine compiles its text as a C class.
"""

from types import TracebackType
from typing import Any, Literal, Self

from headgate.engine.entry import Entry
from headgate.errors import InvalidCall
from headgate.permit import OUTCOMES, Outcome, checked_outcome

WAITS = "this permit has a timeout, and waits where it is entered: write `with shedder.permit(...):`, or `async with`"


class EntryPermit:
    """A permit that an entry grants. A block ends it; so does `release`, whichever comes first."""

    __slots__ = ("_outer", "_shown", "began", "deadline", "entry", "mark", "outcome", "state")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        """The entry of its class; the place of the permit is given back there, and nowhere else."""
        self.state: Literal["asked", "held", "refused", "ended"] = "asked"
        self.outcome: Outcome | None = None
        """How the permit ended; None while it is held, and for a refused permit."""
        self.began = 0
        """The instant at which the permit was granted."""
        self.mark: tuple[Any, int] | None = None
        """The estimator that measures the request, and its mark there, until it has its sample."""
        self.deadline: int | None = None
        """The instant from which on the answer is worth nothing."""
        self._shown = False
        self._outer: str | None = None
        """The class of the code around the block."""

    def __bool__(self) -> bool:
        if self.state == "asked":
            raise InvalidCall(WAITS)
        return self.state != "refused"

    def release(self, outcome: Outcome = "success") -> bool:
        """Release the permit with this outcome. True if this call released it, False if it had ended already."""
        if outcome not in OUTCOMES:
            checked_outcome(outcome)
        if self.state == "asked":
            raise InvalidCall(WAITS)
        return self._end(outcome)

    def _end(self, outcome: Outcome) -> bool:
        places = self.entry.places
        if not places.end(self, outcome):
            return False
        if places.waiting or self.mark is not None:
            self.entry.shedder.sample(self, outcome)
        return True

    def __enter__(self) -> Self:
        if self.state != "held":
            self.wait()
        self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hide()
        if kind is None:
            self._end("success")
        else:  # quick failures must not look like speed
            self._end("dropped" if issubclass(kind, TimeoutError) else "ignored")

    def show(self) -> None:
        """Show class and deadline to the code that runs from here on, perhaps in a second context."""
        self._show()

    def _show(self) -> None:
        entry = self.entry
        if not self._shown:
            self._shown = True
            self._outer = entry.variable.get()
        entry.variable.set(entry.name)
        if self.deadline is not None:
            self.show_deadline()

    def hide(self) -> None:
        """Hide class and deadline again, in the context of the caller."""
        self._hide()

    def _hide(self) -> None:
        if self._shown:  # not by a token: a request may end in another context than it began in
            self.entry.variable.set(self._outer)
            if self.deadline is not None:
                self.hide_deadline()

    def wait(self) -> None:
        """Wait until the permit is granted; raise if it is refused."""
        raise NotImplementedError

    def show_deadline(self) -> None:
        """Show the deadline to the code that runs from here on."""
        raise NotImplementedError

    def hide_deadline(self) -> None:
        """Hide the deadline again."""
        raise NotImplementedError

    def __del__(self) -> None:
        if self.state == "held":
            self.entry.places.abandoned.append(self.mark)
