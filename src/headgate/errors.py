"""The exceptions of Headgate, as a tree.

    HeadgateError
    ├── InvalidLimit (ValueError)   a limit that cannot be read, or does not fit the number contract
    ├── InvalidCall (ValueError)    an argument that is not valid: a key, a cost, the URL of a store
    ├── InvalidPolicy (ValueError)  a policy that cannot be read; lists every mistake with its place
    ├── StoreError                  the store cannot be opened, or cannot answer: full, closed, unreachable
    ├── RateLimited                 a refusal, raised by `limited`, a permit or a reservation
    ├── Overloaded                  a refusal of a load shedder, raised by its permit
    └── BudgetExhausted             a call to another service that its budget did not make

A refusal is not an error: it is a `Decision` that is false. The other errors mean that something is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.clock import write_seconds
from headgate.wording import without_password

if TYPE_CHECKING:
    from headgate.decision import Decision


class HeadgateError(Exception):
    """The base class of every error that Headgate raises on purpose."""


class InvalidLimit(HeadgateError, ValueError):
    """A limit cannot be read, or its numbers do not fit; the message shows values that would."""


class InvalidCall(HeadgateError, ValueError):
    """An argument is not valid: a bad key, cost, timeout or URL, or the same limit and key twice in one decision."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_password(message))


class InvalidPolicy(HeadgateError, ValueError):
    """A policy cannot be read. `mistakes` has one text for each mistake, with its file and line where known."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(map(without_password, mistakes))
        super().__init__("\n".join(self.mistakes))

    def __reduce__(self) -> tuple[type[InvalidPolicy], tuple[tuple[str, ...]]]:
        return type(self), (self.mistakes,)


class StoreError(HeadgateError):
    """The store cannot answer. The message never contains the password of a URL."""

    def __init__(self, message: str = "") -> None:
        super().__init__(without_password(message))


class RateLimited(HeadgateError):
    """A refusal, raised by `limited`, a permit or a reservation; `decision` is the whole answer."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.retry_after = decision.retry_after
        when = f"retry after {write_seconds(decision.retry_us)} s"
        if decision.never:
            when = "the cost can never fit"
        elif decision.unknown:
            when = "retry when a permit is released"
        super().__init__(f"rate limited by {decision.binding}: {when}")

    def __reduce__(self) -> tuple[type[RateLimited], tuple[Decision]]:
        return type(self), (self.decision,)


class Overloaded(HeadgateError):
    """A refusal of a load shedder: the service has no room for a request of this class now."""

    def __init__(self, request_class: str, reason: str, retry_after: int) -> None:
        self.request_class, self.reason, self.retry_after = request_class, reason, retry_after
        super().__init__(f"overloaded ({reason}): a {request_class} request was refused; retry after {retry_after} s")

    def __reduce__(self) -> tuple[type[Overloaded], tuple[str, str, int]]:
        return type(self), (self.request_class, self.reason, self.retry_after)


class BudgetExhausted(HeadgateError):
    """A call was not made, or was given up: the service that it calls would refuse it, or its time would run out.

    This is no `RateLimited`: the caller did nothing wrong. A web edge answers 503 with Retry-After.
    """

    def __init__(self, key: str, reason: str, retry_after: float) -> None:
        self.key, self.reason, self.retry_after = key, reason, retry_after
        super().__init__(f"no call to {key} was made: {reason}; retry after {retry_after:.3f} s")

    def __reduce__(self) -> tuple[type[BudgetExhausted], tuple[str, str, float]]:
        return type(self), (self.key, self.reason, self.retry_after)
