"""Limits of single methods: marks on a servicer's methods, read when the method is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from headgate.web.callables import mark_of
from headgate.web.endpoint import EndpointLimit

MARKS: Final = "__headgate_limits__"
Marked = TypeVar("Marked", bound=Callable[..., Any])


class Marks(NamedTuple):
    """The limits of a method; empty if it is exempt."""

    calls: tuple[EndpointLimit, ...] = ()
    messages: tuple[EndpointLimit, ...] = ()


def limited(limits: Any, *, key: Any = "ip", messages: bool = False, **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """Limit a servicer's method. Any field of a policy's rule can be given by name.

    Functions (`limits`, `key`, `cost`, `exempt`) take an `Rpc`. `messages` counts each message that a client streams,
    in place of the call. Several limits on one method are one decision: all are charged, or none is. They need the
    interceptor.
    """
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(method: Marked) -> Marked:
        marks = marks_of(method) or Marks()
        if messages:
            return _marked(method, marks._replace(messages=(limit, *marks.messages)))
        return _marked(method, marks._replace(calls=(limit, *marks.calls)))

    return decorate


def exempt(method: Marked) -> Marked:
    """Exempt a method from the default limits."""
    return _marked(method, Marks())


def _marked(method: Marked, marks: Marks) -> Marked:
    """Set the marks of a method; a bound method is wrapped, as a mark on it would be its class's."""
    target: Any = functools.partial(method) if inspect.ismethod(method) else method
    setattr(target, MARKS, marks)
    marked: Marked = target
    return marked


def marks_of(method: Any) -> Marks | None:  # noqa: ANN401
    """Return the marks of a method, also through `functools.partial`."""
    marks: Marks | None = mark_of(method, MARKS)
    return marks
