"""Limits of single methods: marks on what a servicer has, read when the method is called."""

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
    """The limits of a method; none at all where it is exempt."""

    calls: tuple[EndpointLimit, ...] = ()
    messages: tuple[EndpointLimit, ...] = ()


def limited(limits: Any, *, key: Any = "ip", messages: bool = False, **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """A limit of a servicer's method. Any field of a policy's rule can be given by name.

    Functions (`limits`, `key`, `cost`, `exempt`) take an `Rpc`. `messages` counts each message that a client streams,
    in place of the call. Several on one method are one decision: all are charged, or none is. Without the interceptor
    nobody asks.
    """
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(method: Marked) -> Marked:
        marks = marks_of(method) or Marks()
        if messages:
            return _marked(method, marks._replace(messages=(limit, *marks.messages)))
        return _marked(method, marks._replace(calls=(limit, *marks.calls)))

    return decorate


def exempt(method: Marked) -> Marked:
    """A method that default limits leave alone."""
    return _marked(method, Marks())


def _marked(method: Marked, marks: Marks) -> Marked:
    """The method with its marks; of a bound one another, for its class is not asked."""
    target: Any = functools.partial(method) if inspect.ismethod(method) else method
    setattr(target, MARKS, marks)
    marked: Marked = target
    return marked


def marks_of(method: Any) -> Marks | None:  # noqa: ANN401
    """The marks of a method, through whatever holds arguments for it."""
    marks: Marks | None = mark_of(method, MARKS)
    return marks
